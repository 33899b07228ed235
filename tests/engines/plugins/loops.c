/* A shared library that never finishes loading. */
__attribute__((constructor)) static void loop(void) {
    for (;;) {
    }
}
