/* Found by plugin.c. */
const char *neighbour_name(void) { return "neighbour"; }
