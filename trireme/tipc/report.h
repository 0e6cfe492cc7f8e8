// How a chain ended, for people, for scripts and for CI.
//
//   status_line(step, result)   Run successfully with command - trireme eval -c …!
//   results_line(…)             the same with model and log file: a line of results_cpp.log
#pragma once

#include <string>
#include <vector>

#include "trireme/tipc/plan.h"
#include "trireme/tipc/runner.h"

namespace trireme::tipc {

std::string status_line(const Step& step, const Result& result);
std::string results_line(const std::string& model_name, const Step& step, const Result& result);

/// A table of all steps and a line with their numbers.
std::string summary(const std::vector<Step>& steps, const std::vector<Result>& results);

/// JUnit's XML, one suite for the chain, one case for each step.
std::string junit_xml(const std::string& suite, const std::vector<Step>& steps, const std::vector<Result>& results);

}  // namespace trireme::tipc
