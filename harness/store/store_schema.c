/* The text of results/schema.sql inside the program; the path is from the root, where builds run. */
#include "harness/store/store_internal.h"

__asm__(".pushsection .rodata\n"
        ".global hr_store_schema\n"
        ".type hr_store_schema, %object\n"
        "hr_store_schema:\n"
        ".incbin \"results/schema.sql\"\n"
        ".byte 0\n"
        ".size hr_store_schema, . - hr_store_schema\n"
        ".popsection\n");
