/* Help out of the tables. */
#include "harness/cli/options.h"

#include <stdio.h>
#include <string.h>

enum { COLUMN = 30, WIDTH = 110 };

/* Prints text from `column` on, wrapped at WIDTH; the cursor stands at `at`. */
static void wrapped(const char *text, size_t column, size_t at) {
    if (at + 2 > column) {
        putchar('\n');
        at = 0;
    }
    printf("%*s", (int)(column - at), "");
    at = column;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (at > column && at + 1 + n > WIDTH) {
            printf("\n%*s", (int)column, "");
            at = column;
        }
        if (at > column) putchar(' '), at++;
        printf("%.*s", (int)n, text);
        at += n;
        text += n + strspn(text + n, " ");
    }
    putchar('\n');
}

static void print_option(const hr_opt *opt) {
    char head[160], text[1024];
    size_t n = 0;
    head[0] = 0;
    /* Short spellings first, as people look for them: "-m, --model MODEL". */
    for (const char *a = opt->alias; a && *a && n < 100; a += strspn(a, " ")) {
        size_t length = strcspn(a, " ");
        n += (size_t)snprintf(head + n, sizeof head - n, "%.*s, ", (int)length, a);
        a += length;
    }
    n += (size_t)snprintf(head + n, sizeof head - n, "%.60s", opt->name);
    if (opt->metavar) snprintf(head + n, sizeof head - n, " %.30s", opt->metavar);
    size_t used = (size_t)snprintf(text, sizeof text, "%s", opt->help);
    /* Choices are worth a list unless the metavar or the help says them already. */
    if (opt->choices && opt->choices[1] && !(opt->metavar && strchr(opt->metavar, '|'))) {
        for (size_t i = 0; opt->choices[i] && used < sizeof text; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "; values: ", opt->choices[i]);
    } else if (opt->choices && !opt->choices[1] && used < sizeof text) {
        used += (size_t)snprintf(text + used, sizeof text - used, "; values: %s", opt->choices[0]);
    }
    if (opt->fallback && used < sizeof text && !(opt->choices && !opt->choices[1]))
        snprintf(text + used, sizeof text - used, " (default: %s)", opt->fallback);
    printf("  %s", head);
    wrapped(text, COLUMN, 2 + strlen(head));
}

void hr_command_help(const hr_command *command) {
    printf("headroom %s - %s\n\nUsage: %s\n", command->name, command->summary, command->synopsis);
    for (size_t i = 0; command->options[i]; i++) {
        const char *group = command->options[i]->group;
        size_t first = 0;
        while (strcmp(command->options[first]->group, group)) first++;
        if (first < i) continue;
        printf("\n%s:\n", group);
        for (size_t j = i; command->options[j]; j++)
            if (!strcmp(command->options[j]->group, group)) print_option(command->options[j]);
    }
    printf("\nExamples:\n");
    for (size_t i = 0; command->examples[i] && command->examples[i + 1]; i += 2)
        printf("  %s\n      %s\n", command->examples[i], command->examples[i + 1]);
}
