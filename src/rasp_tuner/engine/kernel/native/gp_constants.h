/* Written by build.py: the constants of these Python files, whose comments say what they bound. */

/* knobs.py */
#define MOST_FEW 8
#define CHOICE_APART 0.7
#define SAME_LEVEL 1e-06

/* model.py */
#define MEMORY_STEPS 20.0
#define JITTER 1e-08
#define GUESS_ROWS 2.0

/* posterior.py */
#define LEAST_VARIANCE 1e-12

/* search.py */
#define NEAR 0.05
#define MOST_MOVE 0.3
#define LEAST_CURVATURE 0.001

/* value.py */
#define LEAST_BEND 0.2
#define MOST_SHIFT 0.25
