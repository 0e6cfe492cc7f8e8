// The pictures `trireme infer` is asked about: found, read, and decoded ahead of the engine.
#pragma once

#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "trireme/core/workers.h"
#include "trireme/deploy/infer/predictor.h"

namespace trireme::apps {

/// Stands for the picture on standard input.
inline constexpr const char* kStandardInput = "-";

struct PictureSources {
  std::vector<std::string> images;  ///< files, folders, patterns of glob(7), "-"
  std::vector<std::string> lists;   ///< files with a name a line, which a label may follow, or "-"
  std::string image_root;           ///< that the names in lists are relative to
  bool recursive = false;           ///< folders with their subfolders
};

struct Pictures {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> skipped;  ///< paths in folders that are not pictures
};

/// All of them, in the order of the sources: the file itself, the JPEG and PNG files of a folder by name, what a pattern
/// finds, what a list names. Throws UsageError for a source without any, SystemError.
Pictures find_pictures(const PictureSources& sources);

/// A batch of files that were read and decoded.
struct PictureBatch {
  std::vector<std::filesystem::path> files;
  infer::Prepared prepared;
};

/// Gives one batch after the other; the next is made while the caller is busy with this one. One thread at a time.
class PictureReader {
 public:
  /// `predictor` must live longer.
  PictureReader(const infer::Predictor& predictor, std::vector<std::filesystem::path> files, int batch_size);
  /// False: no batch is left.
  bool next(PictureBatch& batch);

 private:
  PictureBatch make(size_t first) const;
  void begin_next();

  const infer::Predictor& predictor_;
  std::vector<std::filesystem::path> files_;
  size_t batch_size_;
  size_t at_ = 0;
  std::future<PictureBatch> coming_;
  Workers ahead_{1, "reading pictures ahead"};  // last: it ends before what it uses
};

/// A batch read now.
PictureBatch read_pictures(const infer::Predictor& predictor, std::vector<std::filesystem::path> files);

}  // namespace trireme::apps
