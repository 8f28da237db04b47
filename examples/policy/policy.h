/* The parameters that an exported policy gives in a context, in C99: no allocation, no files, no other library.
 *
 *   #include "policy.h"
 *   #include "policy_table.h"                    // written by: rasp export run.rasp policy.json --c policy_table.h
 *   policy_value context[] = {{POLICY_NUMBER, 420, 0}, {POLICY_TEXT, 0, "eu"}};   // in the order of policy.fields
 *   const policy_value *params = policy_params(&policy, context);                 // in the order of policy.knobs
 *
 * A policy that explores (docs/EDGE.md) has several settings in a leaf; a key, as the id of a user, always gets the same:
 *
 *   policy_pick pick = policy_pick_of(&policy, context, "user-17");               // pick.params, pick.probability
 *
 * A context that is wrong gets the default. docs/POLICY.md has the rules. */
#ifndef RASP_POLICY_H
#define RASP_POLICY_H

typedef enum {
    POLICY_ABSENT, /* a knob that does not exist beside the others; in a context the same as null */
    POLICY_NULL,
    POLICY_BOOL,   /* number is 0 or 1 */
    POLICY_NUMBER,
    POLICY_TEXT    /* UTF-8 */
} policy_type;

typedef struct {
    policy_type type;
    double number;
    const char *text;
} policy_value;

typedef enum { POLICY_OF_NUMBER, POLICY_OF_FLAG, POLICY_OF_TEXT, POLICY_OF_TIME, POLICY_OF_WEEKDAY } policy_kind;

typedef struct {
    const char *name;
    policy_kind kind;
    int required;
} policy_field;

typedef struct {
    int leaf;  /* its number; -1: this is a test */
    int field; /* that is tested */
    int missing; /* whether a missing value passes */
    int is_number; /* whether the test is: at most `at_most` */
    double at_most;
    const char *const *in; /* texts that pass; ends with a null pointer */
    int then_node, else_node;
} policy_node;

typedef struct {
    int field_count, knob_count, leaf_count;
    const policy_field *fields;
    const char *const *knobs;
    const policy_node *nodes;
    const policy_value *params; /* a row of knob_count values for each leaf, and then one for the default */
    const char *version, *salt; /* of a policy that explores; else null, as are the next three */
    const int *settings_at;     /* where the settings of each leaf begin, and where those of the last one end */
    const int *weights;         /* of every setting; those of a leaf sum to POLICY_WEIGHTS */
    const policy_value *settings; /* a row of knob_count values for each setting */
} policy_table;

#define POLICY_WEIGHTS 10000

typedef struct {
    const policy_value *params; /* as of policy_params */
    int leaf;                   /* -1: the context is wrong, and the default runs */
    int setting;                /* its place in the leaf; 0: what is recommended there */
    double probability;         /* with which a key gets this setting here; -1 where nothing was drawn */
} policy_pick;

/* The number of the leaf that a context of field_count values leads to; -1 if the context is wrong. */
int policy_leaf(const policy_table *policy, const policy_value *context);

/* The knob_count parameters to run in a context. */
const policy_value *policy_params(const policy_table *policy, const policy_value *context);

/* What a key, in UTF-8, runs in a context. Without a key (null), or if the policy does not explore: what is recommended. */
policy_pick policy_pick_of(const policy_table *policy, const policy_value *context, const char *key);

#endif
