#include <algorithm>
#include <system_error>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/image/image_list.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

bool is_picture(const fs::path& file) {
  const std::string suffix = to_lower(file.extension().string());
  return suffix == ".jpg" || suffix == ".jpeg" || suffix == ".png";
}

/// The names of the sub-folders, sorted. A link to a folder is one.
std::vector<std::string> class_folders(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Relative to `folder`, sorted. Links below a class are not followed: they might lead back.
std::vector<std::string> pictures(const fs::path& folder, const std::string& name) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder / name))
    if (is_picture(entry.path()) && entry.is_regular_file())
      paths.push_back((name / entry.path().lexically_relative(folder / name)).string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

ImageList read(const fs::path& folder) {
  ImageList list;
  const std::vector<std::string> names = class_folders(folder);
  if (names.empty())
    throw UsageError("{}: there is no sub-folder; an image folder has one for each class", folder.string());
  for (size_t label = 0; label < names.size(); ++label) {
    const auto paths = pictures(folder, names[label]);
    if (paths.empty())
      throw UsageError("{}: class {} has no picture (.jpg, .jpeg, .png); remove the folder or fill it",
                       (folder / names[label]).string(), label);
    for (const std::string& path : paths) list.add(path, static_cast<int32_t>(label));
  }
  list.set_class_names(names);
  return list;
}

}  // namespace

ImageList read_image_folder(const fs::path& folder) {
  try {
    return read(folder);
  } catch (const fs::filesystem_error& error) {
    throw SystemError(error.code().value(), "cannot read the image folder {}", error.path1().string());
  }
}

}  // namespace trireme::data
