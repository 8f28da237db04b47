/* See policy.h. */
#include "policy.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LARGEST_WHOLE 9007199254740992.0 /* 2^53 */

static const char *const DAYS[] = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};
static const char *const WORDS[] = {"true", "yes", "on", "1", "false", "no", "off", "0"}; /* four of yes, four of no */

typedef struct {
    policy_type type; /* POLICY_NULL, POLICY_NUMBER or POLICY_TEXT */
    double number;
    const char *text;
    char digits[24];
} read_value;

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Whether `text` begins as `whole` does, in any case, and ends where that may end. */
static int begins(const char *whole, const char *text) {
    while (*text && lower(*whole) == lower(*text)) whole++, text++;
    return *text == 0;
}

/* Two or four digits as a number, read over; -1 if they are not there. */
static int digits(const char **at, int count) {
    int number = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        if (**at < '0' || **at > '9') return -1;
        number = 10 * number + (**at - '0');
    }
    return number;
}

static int skip(const char **at, char c) { return **at == c ? ((*at)++, 1) : 0; }

/* A date, a time of day or both, as in ISO 8601: the weekday, or -1 without a date, and seconds since midnight. */
static int moment(const char *text, int *weekday, int *seconds) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}, shift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
    const char *at = text;
    int year, month, day, hour, minute, second = 0;
    *weekday = -1, *seconds = 0;
    if (strlen(text) > 4 && text[4] == '-') {
        if ((year = digits(&at, 4)) < 1 || !skip(&at, '-')) return 0;
        if ((month = digits(&at, 2)) < 1 || month > 12 || !skip(&at, '-') || (day = digits(&at, 2)) < 1) return 0;
        int leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        if (day > days[month - 1] + (month == 2 && leap)) return 0;
        int y = year - (month < 3);
        *weekday = (y + y / 4 - y / 100 + y / 400 + shift[month - 1] + day + 6) % 7; /* 0 is Monday */
        if (*at == 0) return 1;
        if (!skip(&at, 'T') && !skip(&at, ' ')) return 0;
    }
    if ((hour = digits(&at, 2)) < 0 || hour > 23 || !skip(&at, ':')) return 0;
    if ((minute = digits(&at, 2)) < 0 || minute > 59) return 0;
    if (skip(&at, ':')) {
        if ((second = digits(&at, 2)) < 0 || second > 59) return 0;
        if (skip(&at, '.')) {
            if (digits(&at, 1) < 0) return 0;
            while (*at >= '0' && *at <= '9') at++;
        }
    }
    *seconds = hour * 3600 + minute * 60 + second;
    if (!skip(&at, 'Z') && (skip(&at, '+') || skip(&at, '-')))
        if (digits(&at, 2) < 0 || !skip(&at, ':') || digits(&at, 2) < 0) return 0;
    return *at == 0;
}

static int set(read_value *out, policy_type type, double number, const char *text) {
    out->type = type, out->number = number, out->text = text;
    return 1;
}

/* A value as tests compare it: a number (a time: seconds), a text, or null if it is missing; 0 if it is wrong. */
static int read(const policy_field *field, const policy_value *given, read_value *out) {
    int weekday, seconds;
    double x = given->number;
    policy_type type = given->type;
    if (type == POLICY_ABSENT || type == POLICY_NULL || (type == POLICY_NUMBER && isnan(x)))
        return field->required ? 0 : set(out, POLICY_NULL, 0, 0);
    const char *text = given->text;
    if (type == POLICY_TEXT ? !text : type != POLICY_BOOL && type != POLICY_NUMBER) return 0; /* no value at all */
    switch (field->kind) {
    case POLICY_OF_NUMBER:
        return type == POLICY_NUMBER && isfinite(x) && set(out, POLICY_NUMBER, x, 0);
    case POLICY_OF_TIME:
        if (type == POLICY_TEXT) return moment(text, &weekday, &seconds) && set(out, POLICY_NUMBER, seconds, 0);
        return type == POLICY_NUMBER && x >= 0 && x <= 86400 && set(out, POLICY_NUMBER, x, 0);
    case POLICY_OF_WEEKDAY:
        if (type == POLICY_NUMBER) {
            if (!(x >= 0 && x <= 6) || x != floor(x)) return 0;
            return set(out, POLICY_TEXT, 0, DAYS[(int)x]);
        }
        if (type != POLICY_TEXT) return 0;
        for (int i = 0; i < 7; i++)
            if (strlen(text) >= 3 && begins(DAYS[i], text)) return set(out, POLICY_TEXT, 0, DAYS[i]);
        return moment(text, &weekday, &seconds) && weekday >= 0 && set(out, POLICY_TEXT, 0, DAYS[weekday]);
    default: /* whole numbers and booleans count as their text; any other number is a text that no test names */
        if (type == POLICY_BOOL) text = x != 0 ? "true" : "false";
        if (type == POLICY_NUMBER && fabs(x) <= LARGEST_WHOLE && x == floor(x)) {
            snprintf(out->digits, sizeof out->digits, "%.0f", x + 0.0); /* -0 is 0 */
            text = out->digits;
        } else if (type == POLICY_NUMBER) {
            return field->kind == POLICY_OF_TEXT && set(out, POLICY_NUMBER, x, 0);
        }
        if (field->kind == POLICY_OF_TEXT) return set(out, POLICY_TEXT, 0, text);
        for (int i = 0; i < 8; i++)
            if (strlen(text) == strlen(WORDS[i]) && begins(WORDS[i], text))
                return set(out, POLICY_TEXT, 0, i < 4 ? "true" : "false");
        return 0;
    }
}

static int holds(const policy_node *test, const read_value *value) {
    if (value->type == POLICY_NULL) return test->missing;
    if (test->is_number) return value->number <= test->at_most;
    if (value->type != POLICY_TEXT) return 0;
    for (const char *const *one = test->in; *one; one++)
        if (strcmp(*one, value->text) == 0) return 1;
    return 0;
}

int policy_leaf(const policy_table *policy, const policy_value *context) {
    read_value value;
    for (int i = 0; i < policy->field_count; i++)
        if (!read(&policy->fields[i], &context[i], &value)) return -1;
    const policy_node *node = policy->nodes;
    while (node->leaf < 0) {
        read(&policy->fields[node->field], &context[node->field], &value);
        node = policy->nodes + (holds(node, &value) ? node->then_node : node->else_node);
    }
    return node->leaf;
}

const policy_value *policy_params(const policy_table *policy, const policy_value *context) {
    int leaf = policy_leaf(policy, context);
    return policy->params + (leaf < 0 ? policy->leaf_count : leaf) * policy->knob_count;
}

/* The next byte of "salt/key"; -1 at the end. `part` says which of the three texts is being read. */
static int next_byte(const char **at, const char *key, int *part) {
    static const char *const slash = "/";
    while (**at == 0) {
        if (++*part > 2) return -1;
        *at = *part == 1 ? slash : key;
    }
    return (unsigned char)*(*at)++;
}

/* MurmurHash3 of 32 bits with seed 0, of "salt/key", as 0 to POLICY_WEIGHTS - 1. */
static int bucket_of(const char *salt, const char *key) {
    uint32_t h = 0, k = 0, length = 0;
    int part = 0, byte;
    while ((byte = next_byte(&salt, key, &part)) >= 0) {
        k |= (uint32_t)byte << 8 * (length++ & 3);
        if (length & 3) continue;
        k *= 0xcc9e2d51u;
        h ^= (k << 15 | k >> 17) * 0x1b873593u;
        h = (h << 13 | h >> 19) * 5 + 0xe6546b64u;
        k = 0;
    }
    k *= 0xcc9e2d51u;
    h ^= (k << 15 | k >> 17) * 0x1b873593u;
    h ^= length;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h ^= h >> 16;
    return (int)((uint64_t)h * POLICY_WEIGHTS >> 32);
}

policy_pick policy_pick_of(const policy_table *policy, const policy_value *context, const char *key) {
    policy_pick pick = {policy->params, policy_leaf(policy, context), 0, -1.0};
    pick.params += (pick.leaf < 0 ? policy->leaf_count : pick.leaf) * policy->knob_count;
    if (pick.leaf < 0 || !policy->salt || !key) return pick;
    const int first = policy->settings_at[pick.leaf];
    int bucket = bucket_of(policy->salt, key);
    while ((bucket -= policy->weights[first + pick.setting]) >= 0) pick.setting++;
    pick.params = policy->settings + (first + pick.setting) * policy->knob_count;
    pick.probability = (double)policy->weights[first + pick.setting] / POLICY_WEIGHTS;
    return pick;
}
