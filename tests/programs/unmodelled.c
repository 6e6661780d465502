/* Calls a function that the simulated driver doesn't model. */
#include <stddef.h>
#include <stdio.h>

extern int cuInit(unsigned);
extern int cuMulticastCreate(void *, const void *);

int main(void) {
    printf("init %d\n", cuInit(0));
    printf("multicast %d\n", cuMulticastCreate(NULL, NULL));
    return 0;
}
