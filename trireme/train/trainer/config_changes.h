// The differences between two configurations, for a warning when a checkpoint is resumed with another file.
//
//   for (const std::string& change : config_changes(saved, now)) …     // "Optimizer.lr.learning_rate: 0.1, now 0.2"
//
// Both are YAML texts, as TrainConfig::to_text() gives them. No torch here.
#pragma once

#include <string>
#include <vector>

namespace trireme::trainer {

/// Sorted by key. Keys that change nothing of what is learned (epochs, output_dir, device, what is printed) are left
/// out; a text that is not a configuration has no changes.
std::vector<std::string> config_changes(const std::string& before, const std::string& now);

}  // namespace trireme::trainer
