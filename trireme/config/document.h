// A configuration file, what it builds upon, and the changes of the command line, as one tree.
//
// A file may name another by its top-level key `base: ../base.yaml` (relative to itself): sections are merged key by
// key, lists and single values are replaced. An override is `KEY.SUB.INDEX=VALUE`; the first '=' ends the key, and the
// value is YAML: 3, 1e-4, True, [1, 5], 'a text', None. A key that the file does not have is added, with a notice.
//
//   const Node root = load_document("ResNet50.yaml", {"Global.epochs=2", "DataLoader.Train.sampler.batch_size=8"});
//   root.section("Global").need<int64_t>("epochs");   // 2
//
// Throws UsageError for a file that cannot be read or parsed, a cycle of bases and an override that does not fit.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/config/node.h"

namespace trireme::config {

Node load_document(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});

/// The same from a text (which names no base), as a checkpoint keeps it. `source` stands in messages for the file.
Node parse_document(const std::string& text, const std::string& source, const std::vector<std::string>& overrides = {});

/// One override upon a tree, whose root is a section.
void apply_override(Value& root, const std::string& option);

}  // namespace trireme::config
