/* Random driver calls from a seed: `chaos SEED OPERATIONS`.
 *
 * Each operation draws from a generator of its own, made of seed, process, thread and the operation's number, so that what it does
 * depends as little as can be on how earlier ones ended. The environment says how it runs:
 *
 *   CHAOS_THREADS=N    threads, which share the primary contexts and split the operations; 1 without it
 *   CHAOS_QUIET=N      so many operations of the process from one quiet point to the next: `still M` is printed, and after a line on
 *                      stdin everything is synchronised, `quiet M` is printed, and a line lets it go on; 2000 without it. In the end
 *                      come `letting go` and `drained`, when only contexts are left, `ending` and `empty`, each waiting for a line
 *   CHAOS_FOLDER=DIR   processes CHAOS_PROCESS=I of CHAOS_PROCESSES=N, which share memory through sockets there
 *   CHAOS_COMPARE=1    for comparing two runs: one thread, no quiet points, nothing that depends on time, some calls before cuInit and
 *                      in a forked child; every call and every output is printed, handles as numbers in the order of their making
 *   CHAOS_WITHOUT=A,B  leaves operations out, by their names in steps.c
 *   CHAOS_VARIABLES=0  images without variables
 *   TRACE=1            prints every call otherwise, too: THREAD.OPERATION FUNCTION CODE OUTPUTS */
#include "chaos.h"
#include <sys/wait.h>

enum { SECONDS_MAX = 900 };
struct options options;
struct actor actors[THREADS_MAX];
static pthread_barrier_t barrier;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static void wait_for_a_line(const char *said, long number) {
    char line[64];
    if (number >= 0) printf("%s %ld\n", said, number);
    else printf("%s\n", said);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(0);
}

/* What one process lets go of may be held by another: each looks when all of them have stopped. */
static void settle_together(const char *said, long number) {
    wait_for_a_line(said, number);
    settle(actors, options.threads);
}

/* The first thread speaks for the process while the others wait at the barrier. */
static void *live(void *argument) {
    struct actor *a = argument;
    long rounds = options.operations / options.quiet, steps = options.quiet / options.threads;
    for (long round = 0; round < rounds; round++) {
        for (long at = 0; at < steps; at++) step(a);
        pthread_barrier_wait(&barrier);
        if (!a->number) {
            send_offers();
            settle_together("still", round);
            wait_for_a_line("quiet", round);
            receive_offers(a);
            end_line(a);
        }
        pthread_barrier_wait(&barrier);
    }
    drain(a);
    pthread_barrier_wait(&barrier);
    if (!a->number) {
        settle_together("letting go", -1);
        wait_for_a_line("drained", -1);
    }
    pthread_barrier_wait(&barrier);
    end_contexts(a);
    return NULL;
}

static void crowd(void) {
    pthread_t threads[THREADS_MAX];
    meet_peers();
    NEED(cuInit(0));
    wait_for_a_line("ready", -1);
    pthread_barrier_init(&barrier, NULL, (unsigned)options.threads);
    for (int at = 0; at < options.threads; at++) actors[at].number = at;
    for (int at = 1; at < options.threads; at++)
        if (pthread_create(&threads[at], NULL, live, &actors[at])) exit(70);
    live(&actors[0]);
    for (int at = 1; at < options.threads; at++) pthread_join(threads[at], NULL);
    wait_for_a_line("ending", -1);
    look_for_the_last_time();
    wait_for_a_line("empty", -1);
}

/* A child goes on from the parent's state for a while, and ends before the parent does anything. */
static void fork_once(struct actor *a) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        printf("child\n");
        if (one_in(a, 2)) CALL(a, cuInit, 0);
        for (int at = 0; at < 20; at++) step(a);
        fflush(stdout);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    printf("child ended %d\n", status);
}

static void compare(void) {
    struct actor *a = actors;
    begin_operation(a);
    int before = below(a, 3) ? 0 : below(a, 8), fork_at = below(a, 4) ? -1 : below(a, (int)options.operations);
    int cleans_up = below(a, 2);
    if (one_in(a, 8)) fork_once(a);
    for (int at = 0; at < before; at++) step(a);
    begin_operation(a);
    CALL(a, cuInit, (unsigned)one_in(a, 10));
    CALL(a, cuInit, 0);
    for (int at = 0; at < options.operations; at++) {
        if (at == fork_at) fork_once(a);
        step(a);
    }
    if (cleans_up) {
        drain(a);
        end_contexts(a);
    }
    end_line(a);
}

int main(int argc, char **argv) {
    if (argc < 3) return 64;
    options = (struct options){
        .seed = strtoull(argv[1], NULL, 0),
        .operations = atol(argv[2]),
        .quiet = setting("CHAOS_QUIET", 2000),
        .compares = setting("CHAOS_COMPARE", 0) != 0,
        .variables = setting("CHAOS_VARIABLES", 1) != 0,
        .threads = (int)setting("CHAOS_THREADS", 1),
        .process = (int)setting("CHAOS_PROCESS", 0),
        .processes = (int)setting("CHAOS_PROCESSES", 1),
        .folder = getenv("CHAOS_FOLDER"),
    };
    options.tells = options.compares || setting("TRACE", 0);
    /* Who is stuck ends by a signal instead of never. */
    alarm(SECONDS_MAX);
    if (getenv("CHAOS_WITHOUT")) leave_out(getenv("CHAOS_WITHOUT"));
    if (options.threads < 1 || options.threads > THREADS_MAX || options.quiet < options.threads) return 64;
    if (options.compares) compare();
    else crowd();
    return 0;
}
