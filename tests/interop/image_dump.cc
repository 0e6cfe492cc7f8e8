// Runs image functions for image_test.py: every line of standard input is `IN OUT FUNCTION NUMBERS…`. IN is a JPEG or
// PNG file; OUT becomes a binary PPM, or for `normalize` the raw floats.
#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/core/file.h"
#include "trireme/data/image/affine.h"
#include "trireme/data/image/decode.h"
#include "trireme/data/image/normalize.h"
#include "trireme/data/image/ops.h"
#include "trireme/data/image/photometric.h"

namespace {

using namespace trireme::image;
using Words = std::vector<std::string>;
using Function = std::function<void(Image&, const Words&)>;

double number(const Words& words, size_t i) {
  return std::stod(words.at(i));
}

Interpolation interpolation_of(const std::string& name) {
  if (name == "nearest") return Interpolation::nearest;
  return name == "bilinear" ? Interpolation::bilinear : Interpolation::bicubic;
}

void resize_by(Image& image, const Words& words) {
  Image out;
  const ResizeMethod method{interpolation_of(words.at(2)), words.at(3) == "pil" ? Backend::pil : Backend::cv2};
  resize(view_of(image), {std::stoi(words.at(0)), std::stoi(words.at(1))}, method, out);
  image = out;
}

AffineOptions affine_options(const std::string& interpolation) {
  return {.interpolation = interpolation_of(interpolation), .fill = {124, 116, 104}};
}

void affine_by(Image& image, const Words& w) {
  affine(image, {number(w, 1), number(w, 2), number(w, 3), number(w, 4), number(w, 5), number(w, 6)},
         affine_options(w.at(0)));
}

Function of_one(void (*function)(Image&, double)) {
  return [function](Image& image, const Words& words) { function(image, number(words, 0)); };
}

Function of_none(void (*function)(Image&)) {
  return [function](Image& image, const Words&) { function(image); };
}

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> all{
      {"decode", [](Image&, const Words&) {}},
      {"resize", resize_by},
      {"affine", affine_by},
      {"rotate", [](Image& image, const Words& w) { rotate(image, number(w, 1), affine_options(w.at(0))); }},
      {"auto_contrast", of_none(auto_contrast)},
      {"equalize", of_none(equalize)},
      {"invert", of_none(invert)},
      {"posterize", [](Image& image, const Words& w) { posterize(image, std::stoi(w.at(0))); }},
      {"solarize", of_one(solarize)},
      {"color", of_one(enhance_color)},
      {"contrast", of_one(enhance_contrast)},
      {"brightness", of_one(enhance_brightness)},
      {"sharpness", of_one(enhance_sharpness)},
      {"hue", of_one(shift_hue)},
  };
  return all;
}

void write_ppm(const std::string& path, const Image& image) {
  std::ofstream out(path, std::ios::binary);
  out << "P6 " << image.width << ' ' << image.height << " 255\n";
  out.write(reinterpret_cast<const char*>(image.pixels.data()), static_cast<std::streamsize>(image.pixels.size()));
}

void write_normalized(const std::string& path, const Image& image) {
  std::vector<float> floats(image.pixels.size());
  normalize(image, {}, floats.data());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(floats.data()), static_cast<std::streamsize>(floats.size() * sizeof(float)));
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream stream(line);
    std::string in, out, name;
    stream >> in >> out >> name;
    const Words words{std::istream_iterator<std::string>(stream), {}};
    Image image = decode(trireme::read_file(in).value());
    if (name == "normalize") {
      write_normalized(out, image);
      continue;
    }
    functions().at(name)(image, words);
    write_ppm(out, image);
  }
  return 0;
}
