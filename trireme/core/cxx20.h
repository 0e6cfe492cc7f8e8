// The first include of the headers that programs begin with: an older language ends here, with one message.
#pragma once

#if __cplusplus < 202002L
#error Trireme needs C++20: compile with -std=c++20 (CMake: target_compile_features(PROGRAM PRIVATE cxx_std_20))
// There is no such file. Without this line the compiler would go on, from one error to the next.
#define TRIREME_STOP <trireme/stop>
#include TRIREME_STOP
#endif
