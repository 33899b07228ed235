// The wheels of libtorch lack the headers of Gloo, which is inside the library. `ProcessGroupGloo.hpp` only needs these names: nothing
// here is instantiated, and its fields that depend on Gloo are pointers.
#pragma once

#include <chrono>

namespace gloo {

class Context {
public:
    void setTimeout(std::chrono::milliseconds timeout);
};

} // namespace gloo
