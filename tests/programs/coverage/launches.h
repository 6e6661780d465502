/* One scenario for each driver function that submits work: a single call, whose pieces of work the reader counts.
 *
 *   coverage launch SYMBOL
 *   coverage captured SYMBOL    captures of launches by that symbol
 *
 * It is called often, as it stands, and once more when the tenant is out of credit under a compute cap. */
#ifndef LAUNCHES_H
#define LAUNCHES_H
#include "coverage.h"

/* What becomes of a call: it waits for credit and is counted, on one device or on both; it does so when it is large; it would if it
 * could be large; it never does. */
enum { PACED_ALWAYS, PACED_ON_BOTH, PACED_IF_LARGE, NEVER_LARGE, PACED_NEVER };
void enter_launch(const char *symbol, int kind, CUresult (*call)(void));
#define LAUNCH_AS(name, symbol, kind) \
    static CUresult name##symbol(void); \
    __attribute__((constructor)) static void enter_##name##symbol(void) { enter_launch(#symbol, kind, name##symbol); } \
    static CUresult name##symbol(void)
#define LAUNCH(symbol, kind) LAUNCH_AS(launch_, symbol, kind)
#define PACED(symbol) LAUNCH(symbol, PACED_ALWAYS)
#define PACED_LARGE(symbol) LAUNCH(symbol, PACED_IF_LARGE)
#define SMALL_ONLY(symbol) LAUNCH(symbol, NEVER_LARGE)
#define PASSED(symbol) LAUNCH(symbol, PACED_NEVER)
void list_launches(void);
int run_launch(const char *symbol);
int run_captured(void);

/* Makes the things below. */
void set_up_launches(void);

/* A line to the reader, who looks at what is counted by now and goes on. */
void look(const char *what, long long number);

/* A kernel that leaves the tenant in debt; and what the reader is told of a call that has just returned: that it has waited, or
 * that nothing can be said, because it came so late that there may have been no debt any more. */
void run_into_debt(void);
long long has_waited(void);

/* What a call works on: two blocks of the first device, below 4 GiB for the calls that know no other; one of the second;
 * memory of the host; arrays of one row, which is 2 MiB at most; and how much of them it is to use, at most ROOM. */
#define SMALL (4 * KIB)
#define LARGE (8 * MIB)
#define ROOM (16 * MIB)
extern unsigned one, two;
extern CUdeviceptr there, managed;
extern CUcontext here_context, there_context;
extern void *host;
extern CUarray row, other_row;
extern size_t bytes;
/* A stream of the first device, which is the thread's default one where the symbol has such. */
extern CUstream stream;
extern CUfunction nothing;
#endif
