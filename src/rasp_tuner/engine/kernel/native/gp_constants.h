/* Written by build.py: the constants of these Python files, whose comments say what they bound. */

/* common_constants.py */
#define ODD_DEVIATIONS 3.0
#define RECENT_STEPS 20.0

/* context_metric.py */
#define FARTHEST 1000000.0

/* numerics.py */
#define LARGEST 1e+100
#define SMALLEST 1e-300

/* bill.py */
#define SMALL_STEP 1e-06

/* knobs.py */
#define MOST_FEW 8
#define CHOICE_APART 0.7
#define SAME_LEVEL 1e-06

/* model.py */
#define JITTER 1e-08
#define GUESS_SHARE 0.5
#define GUESS_ROWS 2.0
#define SAME_SHARE 1e-12
#define UNTOLD_SHARE 0.1
#define LEAST_UNIT 1e-250
#define MOST_SPREAD 1000000.0

/* posterior.py */
#define LEAST_VARIANCE 1e-12

/* search.py */
#define STEP 0.1
#define NEAR 0.05
#define WIDE 0.2
#define MOST_MOVE 0.3
#define DESCENTS 4
#define LEAST_CURVATURE 0.001
#define BEST_ROWS 4
#define SHORTLIST 16
#define SEVERAL 16
#define ELSEWHERE 8
#define LITTLE 0.15

/* value.py */
#define LEAST_BEND 0.2
#define MOST_SHIFT 0.25
