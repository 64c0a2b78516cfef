/* The names and sentences of counters and drops. */
#include "base/counters.h"

#define X_NAME(name, text) #name,
#define X_TEXT(name, text) text,

const char *count_name(enum count what)
{
        static const char *const names[] = {COUNT_LIST(X_NAME)};
        return (size_t)what < COUNT_COUNT ? names[what] : "?";
}

const char *count_text(enum count what)
{
        static const char *const texts[] = {COUNT_LIST(X_TEXT)};
        return (size_t)what < COUNT_COUNT ? texts[what] : "?";
}

const char *drop_name(enum drop why)
{
        static const char *const names[] = {"NONE", DROP_LIST(X_NAME)};
        return (size_t)why < DROP_COUNT ? names[why] : "?";
}

const char *drop_text(enum drop why)
{
        static const char *const texts[] = {"not dropped", DROP_LIST(X_TEXT)};
        return (size_t)why < DROP_COUNT ? texts[why] : "?";
}
