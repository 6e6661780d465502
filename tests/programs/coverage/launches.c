/* Runs the scenarios of what submits work. */
#include "launches.h"

enum { LAUNCHES_MAX = 256, CALLS = 82, LARGE_CALLS = 3 };
/* Debt lasts longer than this. */
enum { DEBT_MS = 150, MAY_WAIT = 2 };
static struct { const char *symbol; int kind; CUresult (*call)(void); } launches[LAUNCHES_MAX];
static int launch_count;
static const char *const kinds[] = {"paced", "paced", "paced-if-large", "never-large", "passed"};

unsigned one, two;
CUdeviceptr there, managed;
CUcontext here_context, there_context;
void *host;
CUarray row, other_row;
size_t bytes = SMALL;
CUstream stream;
CUfunction nothing;

void enter_launch(const char *symbol, int kind, CUresult (*call)(void)) {
    if (launch_count == LAUNCHES_MAX) abort();
    launches[launch_count].symbol = symbol;
    launches[launch_count].kind = kind;
    launches[launch_count++].call = call;
}

void list_launches(void) {
    for (int i = 0; i < launch_count; i++) printf("%s %s\n", kinds[launches[i].kind], launches[i].symbol);
}

static CUarray array_of_one_row(void) {
    CUDA_ARRAY_DESCRIPTOR shape = {1 << 17, 0, 0x20, 4};
    CUarray made;
    NEED(cuArrayCreate_v2(&made, &shape));
    return made;
}

void set_up_launches(void) {
    there_context = on(1);
    NEED(cuMemAlloc_v2(&there, ROOM));
    here_context = begin();
    NEED(cuMemAlloc(&one, ROOM));
    NEED(cuMemAlloc(&two, ROOM));
    NEED(cuMemAllocManaged(&managed, ROOM, 1));
    NEED(cuMemHostAlloc(&host, ROOM, 0));
    NEED(cuMemsetD8_v2(one, 0, ROOM));
    row = array_of_one_row(), other_row = array_of_one_row();
    nothing = kernel("spin_0us");
    NEED(cuFuncSetBlockShape(nothing, 32, 1, 1));
    if (!per_thread) stream = stream_of_its_own();
    NEED(cuCtxSynchronize());
}

void look(const char *what, long long number) {
    char line[16];
    printf("%s %lld\n", what, number);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(75);
}

static void synchronise_both(void) {
    NEED(cuCtxSynchronize());
    NEED(cuCtxSetCurrent(there_context));
    NEED(cuCtxSynchronize());
    NEED(cuCtxSetCurrent(here_context));
}

static void call_often(CUresult (*call)(void), int times, int pieces_each) {
    int failed = 0;
    look("from", 0);
    for (int i = 0; i < times; i++) failed += call() != SUCCESS;
    is("every call succeeds", failed, 0);
    synchronise_both();
    look("counted", times * pieces_each);
}

static double debt_from_ms;

void run_into_debt(void) {
    debt_from_ms = now_ms() + 60;
    NEED(launch(kernel("spin_60ms"), NULL));
    NEED(cuCtxSynchronize());
    look("debt", 0);
}

long long has_waited(void) { return now_ms() - debt_from_ms > DEBT_MS ? MAY_WAIT : 1; }

/* What a call does that finds the tenant in debt. */
static void call_in_debt(CUresult (*call)(void), int waits) {
    run_into_debt();
    is("one more", call(), SUCCESS);
    look("waited", waits ? has_waited() : 0);
    NEED(cuCtxSynchronize());
}

int run_launch(const char *symbol) {
    int found = 0;
    for (int i = 0; i < launch_count; i++) {
        if (strcmp(launches[i].symbol, symbol)) continue;
        if (!found++) {
            NEED(cuInit(0));
            set_up_launches();
        }
        int kind = launches[i].kind;
        bytes = SMALL;
        call_often(launches[i].call, CALLS, kind == PACED_ALWAYS ? 1 : kind == PACED_ON_BOTH ? 2 : 0);
        call_in_debt(launches[i].call, kind == PACED_ALWAYS || kind == PACED_ON_BOTH);
        if (kind != PACED_IF_LARGE) continue;
        bytes = LARGE;
        call_often(launches[i].call, LARGE_CALLS, 1);
        call_in_debt(launches[i].call, 1);
    }
    if (!found) fprintf(stderr, "no launch by %s\n", symbol);
    puts("done");
    return found ? verdict() : 64;
}
