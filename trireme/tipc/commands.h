// The command lines of the steps: programs of the case, with what the chain adds to them.
//
// Every flag is `key=value` with the key of the case's own line, so that any program can be tested. Trainings always
// run under `trireme launch`; `python` goes before programs that end in .py.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/tipc/case.h"

namespace trireme::tipc {

/// norm_train_gpus_0,1, or with _autocast_null_nodes_2: as the original chain names the folders of the two formats.
std::string group_name(const Case& test, const Placement& placement, const std::string& autocast,
                       const Trainer& trainer);

Words train_command(const Case& test, Mode mode, const Placement& placement, const std::string& autocast,
                    const Trainer& trainer, const std::filesystem::path& folder);
Words benchmark_command(const Case& test, const Placement& placement, const std::string& fp_item,
                        const std::string& batch_size, const std::filesystem::path& folder);
/// UsageError when the program cannot be told of a batch size or a precision: its measurement would have a wrong name.
void check_benchmark(const Case& test);
Words eval_command(const Case& test, const Placement& placement, const std::string& weights);
Words export_words(const Case& test, const Words& command, const std::string& weights,
                   const std::filesystem::path& inference);
Words infer_words(const Case& test, const InferVariant& variant, const std::filesystem::path& model, const Words& more);

}  // namespace trireme::tipc
