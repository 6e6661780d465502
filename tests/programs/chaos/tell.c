/* What is printed: each call with its answer and its outputs. Where two runs are compared, handles and addresses are numbered as
 * they appear, since their values differ from run to run. */
#include "chaos.h"

enum { NAMES_MAX = 1 << 14 };
static uint64_t names[NAMES_MAX];
static int name_count;

static void add(struct actor *a, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(a->line + a->line_length, LINE_MAX - a->line_length, format, arguments);
    va_end(arguments);
    a->line_length += (size_t)length;
    if (a->line_length >= LINE_MAX) a->line_length = LINE_MAX - 1;
}

void end_line(struct actor *a) {
    if (a->line_length) printf("%s\n", a->line);
    a->line_length = 0;
}

CUresult tell(struct actor *a, const char *function, CUresult code) {
    if (!options.tells) return code;
    end_line(a);
    add(a, "%d.%ld %s %d", a->number, a->operation, function, code);
    return code;
}

void put_number(struct actor *a, uint64_t number) {
    if (options.tells) add(a, number == UNTOUCHED ? " -" : " %llu", (unsigned long long)number);
}

static void put_name(struct actor *a, int number) { add(a, " #%d", number); }

/* A new thing gets a new number, also where the driver gives an old address out again. */
void put_made(struct actor *a, uint64_t handle) {
    if (!options.tells) return;
    if (!options.compares) add(a, " %#llx", (unsigned long long)handle);
    else if (handle == UNTOUCHED || !handle) put_number(a, handle);
    else if (name_count < NAMES_MAX) {
        names[name_count++] = handle;
        put_name(a, name_count);
    }
}

void put_known(struct actor *a, uint64_t handle) {
    if (!options.tells) return;
    for (int at = name_count; options.compares && at > 0; at--) {
        if (names[at - 1] == handle) {
            put_name(a, at);
            return;
        }
    }
    put_made(a, handle);
}

void put_subject(struct actor *a, uint64_t handle) {
    if (options.tells) add(a, " of");
    put_known(a, handle);
}

void put_found(struct actor *a, void *found) { put_number(a, found == (void *)UNTOUCHED ? UNTOUCHED : found != NULL); }

/* What has ended: its address may soon be another thing's. */
void forget_name(uint64_t handle) {
    for (int at = 0; options.compares && at < name_count; at++)
        if (names[at] == handle) names[at] = 0;
}
