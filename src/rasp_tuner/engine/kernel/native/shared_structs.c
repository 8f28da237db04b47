/* Where the fields of structs lie that Python fills in: it compares this with its own when it loads the library.
 * A struct that both share has its lines here, and a class in ../shared_structs.py. */
#include <stddef.h>

#include "kernel.h"

typedef struct {
    const char *name;
    int64_t value;
} Place;

#define NUMBER(name) {#name, name}
#define SIZE(type) {#type, (int64_t)sizeof(type)}
#define AT(type, field) {#type "." #field, (int64_t)offsetof(type, field)}

static const Place PLACES[] = {
    NUMBER(L), NUMBER(E), NUMBER(SLOTS), NUMBER(SPARE_SLOTS), NUMBER(WINDOW), NUMBER(EARLY), NUMBER(NOISES),
    NUMBER(SKETCH_DIMENSIONS), NUMBER(RANK), NUMBER(MOST_KNOBS),

    SIZE(Dims), AT(Dims, d), AT(Dims, c), AT(Dims, k), AT(Dims, p), AT(Dims, q), AT(Dims, P), AT(Dims, R), AT(Dims, w),
    AT(Dims, r), AT(Dims, m), AT(Dims, default_), AT(Dims, sketch),

    SIZE(State), AT(State, keys), AT(State, prompts), AT(State, trust), AT(State, counts), AT(State, last),
    AT(State, count), AT(State, steps), AT(State, latest), AT(State, origin), AT(State, previous), AT(State, mean),
    AT(State, moment), AT(State, changes), AT(State, distance), AT(State, context_least), AT(State, context_most),
    AT(State, curvature), AT(State, level),
    AT(State, level_variance), AT(State, largest), AT(State, tracked), AT(State, location),
    AT(State, location_variance), AT(State, scores), AT(State, noises), AT(State, weights), AT(State, first),
    AT(State, suspected), AT(State, early), AT(State, window_points), AT(State, window_contexts),
    AT(State, window_losses), AT(State, window_weights), AT(State, reduced_mean), AT(State, reduced_moments),
    AT(State, centre), AT(State, encode), AT(State, theta), AT(State, unit), AT(State, covariance), AT(State, fitted),

    SIZE(One), AT(One, dims), AT(One, state), AT(One, context), AT(One, draws), AT(One, point), AT(One, y),
    AT(One, losses), AT(One, failed), AT(One, logs), AT(One, chosen), AT(One, noise), AT(One, figures),
};

#pragma GCC visibility push(default)
int64_t rasp_places(const Place **places);
#pragma GCC visibility pop

/* How many there are. */
int64_t rasp_places(const Place **places) {
    *places = PLACES;
    return (int64_t)(sizeof PLACES / sizeof *PLACES);
}
