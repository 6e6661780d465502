/* The words, the clock, and which of the jobs it is; busy.h says what there is. */
#include "busy.h"
#include <errno.h>
#include <sys/prctl.h>

struct options options = {
    .mode = "async", .kernel = "spin_200us", .compute = "spin_100us", .arrivals = "poisson", .streams = 1, .threads = 1,
    .nodes = 10, .kernels = 40, .computes = 2, .seed = 1, .device_count = 1, .rate = 20, .bytes = 64 << 20, .rounds = 1000,
    .cpu_ns = 400000000, .gpu_ns = 400000000,
};

static int failure;

int failed(CUresult code) {
    int none = 0;
    if (code) __atomic_compare_exchange_n(&failure, &none, code, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return code != 0;
}

int first_failure(void) { return __atomic_load_n(&failure, __ATOMIC_RELAXED); }

long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

void rest_until(long long at_ns) {
    struct timespec at = {at_ns / 1000000000, at_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {}
}

void be_ready(void) {
    char line[64];
    printf("pid %d\nready\n", (int)getpid());
    fflush(stdout);
    if (options.wait && !fgets(line, sizeof line, stdin)) exit(0);
}

static void wrong(const char *word) {
    fprintf(stderr, "busy: what is %s?\n", word);
    exit(64);
}

/* Nanoseconds of `200us`, `3ms` or `10s`; -1 when it is no duration. */
static long long duration_ns(const char *text) {
    char *unit;
    double number = strtod(text, &unit);
    if (unit == text) return -1;
    if (!strcmp(unit, "us")) return (long long)(number * 1e3);
    if (!strcmp(unit, "ms")) return (long long)(number * 1e6);
    return strcmp(unit, "s") ? -1 : (long long)(number * 1e9);
}

long long told_ns(const char *kernel) {
    const char *last = strrchr(kernel, '_');
    long long told = last ? duration_ns(last + 1) : -1;
    return told < 0 ? 0 : told;
}

static int word_of(const char *const *words, const char *word) {
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], word)) return i;
    return -1;
}

static const char *const LAUNCHES[] = {"kernel", "ex", "coop", "multi", "grid", "graph", "copies", "memsets", NULL};
static const char *const STREAM_KINDS[] = {"own", "legacy", "ptds", NULL};

static int bounded(const char *value, int most) {
    int number = atoi(value);
    if (number < 1 || number > most) wrong(value);
    return number;
}

static void set_mode(const char *value) {
    static const char *const MODES[] = {"async", "sync", "requests", "rank", "batch", NULL};
    int launch = word_of(LAUNCHES, value), stream = word_of(STREAM_KINDS, value);
    options.mode = "async";
    if (launch >= 0) options.launch = (enum launch_kind)launch;
    else if (stream >= 0) options.stream = (enum stream_kind)stream;
    else if (!strncmp(value, "streams:", 8)) options.streams = bounded(value + 8, STREAMS_MAX);
    else if (!strncmp(value, "threads:", 8)) options.threads = bounded(value + 8, THREADS_MAX);
    else if (!strcmp(value, "long")) options.count = 1;
    else if (word_of(MODES, value) >= 0) options.mode = value;
    else wrong(value);
}

static void set_devices(char *value) {
    options.device_count = 0;
    for (char *one = strtok(value, ","); one; one = strtok(NULL, ",")) {
        if (options.device_count == DEVICES_MAX) wrong(one);
        options.devices[options.device_count++] = atoi(one);
    }
    if (!options.device_count) wrong("devices=");
}

static size_t size_of(const char *text) {
    char *unit;
    double number = strtod(text, &unit);
    return (size_t)(number * (*unit == 'G' ? 1 << 30 : *unit == 'M' ? 1 << 20 : *unit == 'K' ? 1 << 10 : 1));
}

static void set_iter(const char *value) {
    options.iter_ns = duration_ns(value);
    if (options.iter_ns < 0) { options.iter_ns = 0; options.iter_launches = atol(value); }
}

static int set_number(const char *name, const char *value) {
    if (!strcmp(name, "streams")) options.streams = bounded(value, STREAMS_MAX);
    else if (!strcmp(name, "threads")) options.threads = bounded(value, THREADS_MAX);
    else if (!strcmp(name, "nodes")) options.nodes = bounded(value, 10000);
    else if (!strcmp(name, "kernels")) options.kernels = bounded(value, 1000000);
    else if (!strcmp(name, "computes")) options.computes = atoi(value);
    else if (!strcmp(name, "seed")) options.seed = atoi(value);
    else if (!strcmp(name, "count")) options.count = atol(value);
    else if (!strcmp(name, "rounds")) options.rounds = atol(value);
    else if (!strcmp(name, "rate")) options.rate = atof(value);
    else if (!strcmp(name, "seconds")) options.run_ns = (long long)(atof(value) * 1e9);
    else if (!strcmp(name, "gap")) options.gap_ns = duration_ns(value);
    else if (!strcmp(name, "cpu")) options.cpu_ns = duration_ns(value);
    else if (!strcmp(name, "gpu")) options.gpu_ns = duration_ns(value);
    else return 0;
    return 1;
}

static void set(char *word) {
    char *value = strchr(word, '=');
    if (!strcmp(word, "wait")) { options.wait = 1; return; }
    if (!value) wrong(word);
    *value++ = 0;
    int at;
    if (set_number(word, value)) return;
    if (!strcmp(word, "mode")) set_mode(value);
    else if (!strcmp(word, "kernel")) options.kernel = value;
    else if (!strcmp(word, "compute")) options.compute = value;
    else if (!strcmp(word, "arrivals")) options.arrivals = value;
    else if (!strcmp(word, "iter")) set_iter(value);
    else if (!strcmp(word, "bytes")) options.bytes = size_of(value);
    else if (!strcmp(word, "device")) options.device = options.devices[0] = atoi(value);
    else if (!strcmp(word, "devices")) { set_devices(value); options.device = options.devices[0]; }
    else if (!strcmp(word, "launch") && (at = word_of(LAUNCHES, value)) >= 0) options.launch = (enum launch_kind)at;
    else if (!strcmp(word, "stream") && (at = word_of(STREAM_KINDS, value)) >= 0) options.stream = (enum stream_kind)at;
    else wrong(word);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) set(argv[i]);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    NEED(cuInit(0));
    if (!strcmp(options.mode, "requests")) answer_requests();
    else if (!strcmp(options.mode, "rank")) take_part();
    else if (!strcmp(options.mode, "batch")) alternate();
    else saturate();
    return first_failure() != 0;
}
