/* Which operation comes next. */
#include "chaos.h"

/* An operation, how often it comes, and whether it may come while a stream is captured. */
struct row { const char *name; operation *run; int weight, in_capture; };
#define ROW(name, weight, in_capture) {#name, name, weight, in_capture}

static struct row rows[] = {
    ROW(linear, 20, 1), ROW(pitched, 6, 1), ROW(managed, 6, 1), ROW(legacy, 4, 1), ROW(release, 40, 1),
    ROW(look, 4, 1), ROW(touch, 4, 1), ROW(info, 8, 1),
    ROW(async, 20, 1), ROW(from_pool, 14, 1), ROW(make_pool, 4, 1), ROW(end_pool, 2, 1), ROW(set_pool, 2, 1), ROW(trim_pool, 4, 1),
    ROW(set_pool_attribute, 4, 1), ROW(get_pool_attribute, 4, 1),
    ROW(create, 12, 1), ROW(release_physical, 10, 1), ROW(map, 10, 1), ROW(unmap, 10, 1), ROW(retain, 4, 1),
    ROW(share_with_self, 3, 1), ROW(offer, 2, 1),
    ROW(array, 6, 1), ROW(array3d, 6, 1), ROW(mipmap, 6, 1), ROW(end_array, 11, 1), ROW(end_mipmap, 6, 1),
    ROW(load, 3, 1), ROW(unload, 3, 1), ROW(load_library, 2, 1), ROW(unload_library, 1, 1), ROW(look_up, 4, 1), ROW(look_up_in_library, 4, 1),
    ROW(launch_kernel, 8, 1),
    ROW(new_context, 2, 0), ROW(end_context, 1, 0), ROW(switch_context, 8, 0), ROW(push_context, 2, 0), ROW(pop_context, 2, 0),
    ROW(retain_primary, 2, 0), ROW(release_primary, 2, 0), ROW(reset_primary, 1, 0), ROW(set_limit, 2, 1), ROW(get_limit, 2, 1),
    ROW(synchronise, 20, 1), ROW(new_stream, 3, 1), ROW(end_stream, 2, 0), ROW(event, 6, 0), ROW(ask_device, 3, 1), ROW(resolve, 2, 1),
    ROW(build_graph, 4, 0), ROW(capture, 4, 0), ROW(instantiate, 6, 1), ROW(launch_graph, 8, 1), ROW(upload_graph, 2, 1), ROW(end_exec, 4, 1),
    ROW(end_graph, 4, 1), ROW(trim_graphs, 3, 1),
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Operations by their names, which never come. */
void leave_out(const char *names) {
    for (int row = 0; row < ROWS; row++) {
        size_t length = strlen(rows[row].name);
        for (const char *at = names; (at = strstr(at, rows[row].name)); at += length) {
            int is_whole = (at == names || at[-1] == ',') && (at[length] == ',' || !at[length]);
            if (is_whole) rows[row].weight = 0;
        }
    }
}

static const struct row *next(struct actor *a) {
    int sum = 0, at = 0;
    for (int row = 0; row < ROWS; row++) sum += rows[row].weight;
    int left = below(a, sum);
    while (left >= rows[at].weight) left -= rows[at++].weight;
    return &rows[at];
}

static int has_context(void) {
    CUdevice device;
    return !cuCtxGetDevice(&device);
}

/* Most operations want a context: where there is none, one of those that there are, or a new one. A primary one that was reset
 * can be current, and is none until it is retained again. */
static void ensure_context(struct actor *a) {
    if (has_context()) return;
    struct thing *own = some(a, CONTEXT);
    int device = below(a, DEVICES);
    if (own && !CALL(a, cuCtxSetCurrent, (CUcontext)own->handle) && has_context()) return;
    if (a->retained[device] && !CALL(a, cuCtxSetCurrent, primaries[device]) && has_context()) return;
    retain_primary(a);
    if (a->retained[device]) CALL(a, cuCtxSetCurrent, primaries[device]);
}

void step(struct actor *a) {
    begin_operation(a);
    pthread_rwlock_rdlock(&shared_contexts);
    if (!options.compares || one_in(a, 3)) ensure_context(a);
    next(a)->run(a);
    pthread_rwlock_unlock(&shared_contexts);
    end_line(a);
}

void step_inside_capture(struct actor *a) {
    const struct row *row = next(a);
    if (row->in_capture) row->run(a);
}
