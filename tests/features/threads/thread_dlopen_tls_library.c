static __thread long variable[1000];
void* my_variable(void) { return &variable[500]; }
