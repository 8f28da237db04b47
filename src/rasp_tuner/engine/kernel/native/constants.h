/* Written by build.py: the constants of these Python files, whose comments say what they bound. */

/* common_constants.py */
#define ODD_DEVIATIONS 3.0
#define ABSURD_DEVIATIONS 5.0
#define CHANGE_IN_A_ROW 2
#define FEWEST_SAMPLES 4
#define NORMAL_FROM_SAMPLES 5
#define EARLY_SAMPLES 40
#define RECENT_STEPS 20.0
#define FADING_SAMPLES 50.0

/* context_metric.py */
#define ALIKE 0.5

/* evidence.py */
#define FARTHEST 1e+150

/* state.py */
#define SLOTS 192
#define SPARE_SLOTS 8
#define WINDOW_SAMPLES 128
#define RANK 3
#define SKETCH_DIMENSIONS 32
#define NOISES 9

/* believe.py */
#define NARROW_WIDTH 0.3
#define FARTHEST_GAP 26.0
#define LEAST_CURVATURE 0.15
#define MOVING_SETTLED_SAMPLES 100
#define MOVING_LOOK_EVERY_STEPS 4
#define MOVING_IDLE_NATS (-7.0)

/* choose.py */
#define HORIZON_STEPS 12.0
#define FIRST_PROBE 0.35
#define REACH {0.1, (-0.1), 0.2, (-0.2), 0.4, (-0.4)}
#define DIRECTIONS 3
#define TIE 1e-06
#define EQUAL_WEIGHTS 1e-09
#define FARTHEST_OUT 40.0
#define ROOT_TWO_PI 2.5066282746310002
#define LEAST_WEIGHT 1e-08

/* learn.py */
#define LEAST_TRACKED_CURVATURE 1e-95

/* memory.py */
#define SHARP_STEPS 64
#define MERGE_CANDIDATES 32
#define SAME_PLACE 1e-12
#define LARGEST_GAP 1e+300
#define JUMP_TIMES 6.0
#define LEAST_SHARE 0.0025
#define REACH_DEVIATIONS 1.36
#define ALIKE_REACHES 2.0
#define MEAN_DISTANCE 2.0
#define LARGEST_DISTANCE 4.0
#define SCALES_SETTLED_SAMPLES 32

/* moving.py */
#define SLOPE_VARIANCE 0.6
#define COMPONENTS_EVERY_STEPS 8
#define YOUNG_SAMPLES 50
#define YOUNG_EXTRA_STEPS 3
#define LARGEST_TARGET 1000000000000.0
#define FARTHEST_OPTIMUM 1000.0
#define STEP_LENGTHS {1.0, 0.4, 0.1}

/* outliers.py */
#define OUTLIER_ODDS 0.01
#define OUTLIER_ODDS_NEW_SITUATION 1e-05
#define OUTLIER_TRUST 1e-06
#define OUTLIER 1.0
#define FAILED 2.0
#define LARGEST_RESIDUAL 1e+60
#define CHI2_MEDIAN 0.455
#define BOWL_NOISES {0.0001, 0.01, 0.3}
#define FALSE_IN_A_ROW 3
#define ONE_IN 3
#define JUDGED 0.3

/* pooled_prior.py */
#define OWN_DEVIATION 0.3
#define COMMON_DEVIATION 0.4
#define LEVEL_VARIANCE 25.0
#define LARGEST_LEVEL 1e+30
#define TINY 1e-100
#define CURVATURE_RATE 0.3
#define RATE 0.1
#define SETTLED_LEVELS 0.1
#define SETTLED_RATE 0.010000000000000002
#define NOISE_ODDS 2.0
#define DECADE_ODDS 1.0
#define LOCAL_ODDS 3.0
#define KEEP 0.97
#define FREEDOM 5.0
#define STUDENT_NORM (-0.9686195890547249)
#define ESTIMATE_NOISES {0.0001, 0.001, 0.01, 0.1, 1.0}
#define START_NOISE 0.01

/* shared_structs.py */
#define MOST_COMPILED_KNOBS 64

/* state.State: X(name, numbers of one tuner) */
#define STATE_ARRAYS(X) \
    X(keys, R * c) X(prompts, R * P) X(trust, L * R) X(counts, R) X(last, R) X(count, 1) X(steps, 1) \
    X(latest, 1) X(origin, c) X(previous, c) X(mean, c) X(moment, c) X(changes, c) X(distance, 2) \
    X(context_least, c) X(context_most, c) X(curvature, 1) X(level, 1) X(level_variance, 1) X(largest, 1) \
    X(tracked, 1) X(location, d) X(location_variance, d) X(scores, E) X(noises, E * NOISES) X(weights, k) \
    X(first, k) X(suspected, 1) X(early, EARLY_SAMPLES) X(window_points, WINDOW_SAMPLES * d) \
    X(window_contexts, WINDOW_SAMPLES * w) X(window_losses, WINDOW_SAMPLES * k) \
    X(window_weights, WINDOW_SAMPLES) X(reduced_mean, w) X(reduced_moments, w * w) X(centre, w) X(encode, w * r) \
    X(theta, m) X(unit, 1) X(covariance, m * m) X(fitted, 1)
