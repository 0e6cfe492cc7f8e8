// How many collectives on tensors this process has begun, in all groups. Internal to the library.
#pragma once

#include <cstdint>

namespace trireme::comm {

int64_t collectives_begun();

}  // namespace trireme::comm
