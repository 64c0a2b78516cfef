#include "unetd/keeper/keeper_ops.h"

int main(int argc, char **argv)
{
        return keeper_main(argc, argv, &keeper_stack_ops);
}
