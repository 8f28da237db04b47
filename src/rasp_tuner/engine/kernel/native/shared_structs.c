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

#define AT_STATE(name, numbers) AT(State, name),

static const Place PLACES[] = {
    NUMBER(L), NUMBER(E), NUMBER(SLOTS), NUMBER(SPARE_SLOTS), NUMBER(WINDOW), NUMBER(EARLY), NUMBER(NOISES),
    NUMBER(SKETCH_DIMENSIONS), NUMBER(RANK), NUMBER(MOST_KNOBS),

    SIZE(Dims), AT(Dims, d), AT(Dims, c), AT(Dims, k), AT(Dims, p), AT(Dims, q), AT(Dims, P), AT(Dims, R), AT(Dims, w),
    AT(Dims, r), AT(Dims, m), AT(Dims, default_), AT(Dims, sketch),

    SIZE(State), STATE_ARRAYS(AT_STATE)

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
