// The engine of a world of one: every collective is a copy, or nothing.
//
//   auto engine = make_local_engine();
#pragma once

#include <memory>

#include "trireme/comm/engine/engine.h"

namespace trireme::comm {

std::unique_ptr<Engine> make_local_engine(std::string group = "");

}  // namespace trireme::comm
