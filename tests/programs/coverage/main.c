/* Runs one scenario. */
#include "launches.h"
#include <dlfcn.h>

enum { SCENARIOS_MAX = 512, SECONDS_MAX = 60 };
static struct { const char *symbol; int is_part; void (*run)(void); } scenarios[SCENARIOS_MAX];
static int scenario_count;
void *tested;
int per_thread;

void enter_scenario(const char *symbol, int is_part, void (*run)(void)) {
    if (scenario_count == SCENARIOS_MAX) abort();
    scenarios[scenario_count].symbol = symbol;
    scenarios[scenario_count].is_part = is_part;
    scenarios[scenario_count++].run = run;
}

void tell(const char *what, long long answer) { printf("%s: %lld\n", what, answer); }

void at_both(const char *where, size_t asked, size_t measured, size_t asked_second, size_t measured_second) {
    char line[16];
    printf("at %zu %zu %zu %zu %s\n", asked, measured, asked_second, measured_second, where);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(75);
}

void at(const char *where, size_t asked, size_t measured) { at_both(where, asked, measured, 0, 0); }

void settle(void) {
    NEED(cuCtxSynchronize());
    usleep(30000);
    NEED(cuCtxSynchronize());
}

void is_unknown(CUresult code) { is("the simulated driver does not know it", code, NOT_SUPPORTED); }

void is_untouched(const char *claim, const void *out, size_t size) {
    size_t changed = 0;
    for (size_t i = 0; i < size; i++) changed += ((const unsigned char *)out)[i] != (POISON & 0xff);
    is(claim, (long long)changed, 0);
}

CUdeviceptr fill(size_t left) { return block(free_bytes() - left); }

void refused_then_granted(attempt allocate, size_t granted) {
    uint64_t out = POISON;
    begin();
    CUdeviceptr filler = fill(4 * MIB);
    at("almost full", QUOTA - CTX - 4 * MIB, CTX);
    is("more than is left", allocate(&out, 8 * MIB), OUT_OF_MEMORY);
    is_untouched("leaves the output alone", &out, sizeof out);
    at("nothing has changed", QUOTA - CTX - 4 * MIB, CTX);
    is("what is left", allocate(&out, 4 * MIB), SUCCESS);
    at("full", QUOTA - CTX, CTX);
    out = POISON;
    is("anything more", allocate(&out, 8 * MIB), OUT_OF_MEMORY);
    is_untouched("leaves the output alone again", &out, sizeof out);
    NEED(cuMemFree_v2(filler));
    at("something is freed", 4 * MIB, CTX);
    is("the same call again", allocate(&out, 8 * MIB), SUCCESS);
    at("is granted", granted + 4 * MIB, CTX);
}

static const char grower[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry grower() { .local .align 16 .b8 depot[1280]; ret; }\n";

CUmodule load_grower(void) {
    CUmodule module;
    NEED(cuModuleLoadData(&module, grower));
    return module;
}

void grow_unseen(CUmodule module) {
    CUfunction function;
    NEED(cuModuleGetFunction(&function, module, "grower"));
    settle();
    NEED(launch(function, NULL));
    NEED(cuCtxSynchronize());
}

/* Finds the function under test; `plain` becomes its name without the lane. */
static void prepare(const char *symbol, char plain[96]) {
    alarm(SECONDS_MAX);
    snprintf(plain, 96, "%s", symbol);
    char *suffix = strstr(plain, "_pt");
    if (suffix && (!strcmp(suffix, "_ptsz") || !strcmp(suffix, "_ptds"))) *suffix = 0, per_thread = 1;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    tested = driver ? dlsym(driver, symbol) : NULL;
}

static void run(int is_part, const char *symbol) {
    char plain[96];
    prepare(symbol, plain);
    for (int i = 0; i < scenario_count && tested; i++)
        if (scenarios[i].is_part == is_part && !strcmp(scenarios[i].symbol, plain)) {
            scenarios[i].run();
            puts("done");
            exit(0);
        }
    fprintf(stderr, "no scenario for %s\n", symbol);
    exit(64);
}

static void list(void) {
    for (int i = 0; i < scenario_count; i++) printf("%s %s\n", scenarios[i].is_part ? "part" : "whole", scenarios[i].symbol);
    list_launches();
}

int main(int argc, char **argv) {
    char plain[96];
    if (argc == 2 && !strcmp(argv[1], "list")) list();
    else if (argc == 3 && !strcmp(argv[1], "launch")) prepare(argv[2], plain), exit(run_launch(plain));
    else if (argc == 3 && !strcmp(argv[1], "captured")) prepare(argv[2], plain), exit(run_captured());
    else if (argc == 3) run(!strcmp(argv[1], "part"), argv[2]);
    else return 64;
    return 0;
}
