#include "am/am_int.h"

void am_tree_free(struct uam *am)
{
        (void)am;
}
