// The names of classes, from a file as PaddleClas' class_id_map_file: `0 tench, Tinca tinca`, one class a line.
//
//   std::vector<std::string> labels = read_labels("imagenet1k_label_list.txt");   // labels[0] == "tench, Tinca tinca"
//
// Numbers may come in any order and must be 0 … n-1, each once. A file without numbers names the classes in their
// order.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::preprocess {

/// Throws UsageError with file and line.
std::vector<std::string> read_labels(const std::filesystem::path& file);
/// The same from a text; `source` stands in messages for the file.
std::vector<std::string> parse_labels(std::string_view text, const std::string& source);

}  // namespace trireme::preprocess
