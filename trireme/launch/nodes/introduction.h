// What a node tells the others about itself before they start together.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/core/net.h"
#include "trireme/launch/plan.h"

namespace trireme::launch {

struct Introduction {
  NodeInfo info;
  std::string name;                    // unique; the name of its store connection
  std::string version;                 // of Trireme
  std::vector<std::string> arguments;  // PROGRAM and its arguments
  std::map<std::string, std::string> file_digests =
      {};               // of PROGRAM and of every argument that is a file (data lists, configs)
  Endpoint probe = {};  // where it answers pings
  int attempt = 0;      // the attempt at the job that it would begin next; 0: it has not taken part yet
  int restarts = 0;     // of the job, as far as it knows
  std::map<std::string, std::string> settings = {};  // variables of its workers that must be alike; empty: unset
};

/// Reads the digests; files above 64 MiB are left out.
Introduction introduce(const Request& request, const NodeInfo& info, const std::string& name);
/// What differs between two nodes that should run the same thing, one line each. Pure.
std::vector<std::string> differences(const Introduction& first, const Introduction& other);
/// What keeps two nodes from running together, one line each. Pure.
std::vector<std::string> contradictions(const Introduction& first, const Introduction& other);

std::string to_json(const Introduction& introduction);
/// Throws PeerError when the text is not an introduction.
Introduction introduction_from_json(const std::string& text);

}  // namespace trireme::launch
