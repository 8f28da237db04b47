/* Answers one context a line: "table key value value ...", tab-separated, with what a key gets behind the parameters; test_evaluators.py writes and reads the lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "tables.h"

static char line[1 << 16];
static policy_value context[64], key;

static void print(const policy_table *table, const policy_value *params) {
    for (int i = 0; i < table->knob_count; i++) {
        if (params[i].type == POLICY_ABSENT) printf("\t-");
        if (params[i].type == POLICY_NULL) printf("\tz");
        if (params[i].type == POLICY_BOOL) printf("\tb%d", params[i].number != 0);
        if (params[i].type == POLICY_NUMBER) printf("\tn%.17g", params[i].number);
        if (params[i].type == POLICY_TEXT) {
            printf("\tt");
            for (const char *at = params[i].text; *at; at++) printf("%02x", (unsigned char)*at);
        }
    }
}

static void parse(char *word, policy_value *value) {
    char *end = word + 1;
    value->type = POLICY_NULL, value->number = 0, value->text = 0;
    if (*word == 'n') value->type = POLICY_NUMBER, value->number = strtod(word + 1, 0);
    if (*word == 'b') value->type = POLICY_BOOL, value->number = word[1] == '1';
    if (*word == 't') { /* hexadecimal, decoded in place */
        for (const char *at = word + 1; *at; at += 2) {
            unsigned byte;
            sscanf(at, "%2x", &byte);
            *end++ = (char)byte;
        }
        *end = 0;
        value->type = POLICY_TEXT, value->text = word + 1;
    }
}

int main(void) {
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        const policy_table *table = TABLES[atoi(strtok(line, "\t"))];
        char *words[64];
        int count = 0;
        parse(strtok(0, "\t"), &key);
        while ((words[count] = strtok(0, "\t")) != 0) count++;
        for (int i = 0; i < count; i++) parse(words[i], &context[i]);
        const policy_pick pick = policy_pick_of(table, context, key.text);
        printf("%d", policy_leaf(table, context));
        print(table, policy_params(table, context));
        printf("\t%d\t%d\t%.17g", pick.leaf, pick.setting, pick.probability);
        print(table, pick.params);
        puts("");
        fflush(stdout);
    }
    return 0;
}
