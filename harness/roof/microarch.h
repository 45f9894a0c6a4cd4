/* microarch.h - names of CPU cores, for the names of machine classes. */
#ifndef HR_MICROARCH_H
#define HR_MICROARCH_H

#include <stddef.h>

/* "zen4", "sapphirerapids" by vendor ("AuthenticAMD", "GenuineIntel"), display family, model and stepping; where the
 * table has no row "fFAMILYmMODEL" in decimal. */
void hr_microarch_name(const char *vendor, unsigned family, unsigned model, unsigned stepping, char *out, size_t bytes);

/* The vendor's product line in a model name: "AMD EPYC 9B14" gives "epyc"; "cpu" when none is known. */
const char *hr_product_line(const char *model_name);

#endif
