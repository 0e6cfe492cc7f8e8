// What moves a group's CPU tensors: a fixed rule of where its ranks run, and the user's wish. The launcher shows it,
// and a group chooses its engine by it.
//
//   choose_transport({0, 0, 1, 1}, "auto")      hierarchical: two hosts with two ranks each
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace trireme {

enum class Transport { local, shm, gloo, hierarchical, mpi };

const char* to_string(Transport transport);

/// "" and "auto" leave the choice to Trireme. UsageError for a name that is none, or "shm" across hosts. Pure.
Transport choose_transport(std::span<const int> host_of, std::string_view wanted);

}  // namespace trireme
