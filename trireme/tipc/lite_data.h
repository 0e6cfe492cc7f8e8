// The few pictures on which a chain is tried: made, not downloaded.
//
//   make_lite_data("dataset/ILSVRC2012", {.images = 16});
//
// gives train/ and val/ with small PNG pictures whose colour tells their class, train_list.txt and val_list.txt with
// `path label` lines, as PaddleClas' data sets have them, and the same again, grey and 28 x 28, in the four files of
// MNIST and its kind. So it stands for either data set. The same call makes the same bytes.
#pragma once

#include <filesystem>
#include <string>

namespace trireme::tipc {

struct LiteData {
  int images = 16;  ///< in each of train and val
  int classes = 4;
  int width = 96;
  int height = 80;
};

enum class DataState {
  absent,
  lite,   ///< made here
  other,  ///< the user's own
};
DataState data_state(const std::filesystem::path& folder);

/// In a folder with lite data: tells what was made, so that nothing else is replaced.
std::filesystem::path lite_data_mark(const std::filesystem::path& folder);

/// Replaces lite data that is there. UsageError when the folder holds something else, or a file in it is no longer what
/// was made; nothing is changed then.
void make_lite_data(const std::filesystem::path& folder, const LiteData& data = {});

}  // namespace trireme::tipc
