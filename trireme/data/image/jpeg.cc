#include "trireme/data/image/jpeg.h"

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it and does not say so
//
#include <jpeglib.h>
//
#include <jerror.h>  // its list depends on what jpeglib.h has defined

#include <algorithm>
#include <string_view>

#include "trireme/data/image/orient.h"

namespace trireme::image {
namespace {

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr unsigned kMaxMarkerBytes = 0xFFFF;
// Every scan of a progressive file is a pass over the whole picture, and costs the attacker some ten bytes. Programs that
// write such files use about ten.
constexpr int64_t kMaxScans = 500, kScansOfAnySize = 32, kMaxScannedPixels = int64_t{1} << 28;

int max_scans(int64_t pixels) {
  return static_cast<int>(std::clamp(kMaxScannedPixels / std::max<int64_t>(pixels, 1), kScansOfAnySize, kMaxScans));
}

/// Damage that leaves wrong pixels behind; libjpeg only warns of it.
bool is_damage(int code) {
  switch (code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
      return true;
    default:
      return false;
  }
}

/// CMYK as it is stored by Adobe (inverted), with OpenCV's arithmetic.
void cmyk_to_rgb(const uint8_t* from, int width, uint8_t* to) {
  for (int i = 0; i < width; ++i, from += 4, to += kChannels)
    for (int c = 0; c < kChannels; ++c) to[c] = static_cast<uint8_t>(from[3] - ((255 - from[c]) * from[3] >> 8));
}

/// Entropy-coded data never holds the bytes FF D9: wherever they stand behind the headers, they are the end.
bool has_end(const JOCTET* data, size_t size) {
  for (size_t i = size; i >= 2; --i)
    if (data[i - 2] == 0xFF && data[i - 1] == JPEG_EOI) return true;
  return false;
}

}  // namespace

/// libjpeg reports errors by a call that must not return, so they leave through longjmp. Between `guarded` and libjpeg
/// there are therefore no objects with destructors, and what is allocated is allocated before.
struct JpegReader::State {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  enum class End { damage, scans, stop } end = End::damage;  // why it was left
  int most_scans = kMaxScans;
  std::function<bool()> stop;
  char message[JMSG_LENGTH_MAX] = "";
  std::vector<uint8_t> cmyk_row;
  int orientation = 1;

  State() {
    jpeg.err = jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr common) { of(common)->leave(); };
    errors.output_message = [](j_common_ptr) {};
    errors.emit_message = [](j_common_ptr common, int level) {
      if (level < 0 && is_damage(common->err->msg_code)) of(common)->leave();
    };
    progress.progress_monitor = [](j_common_ptr common) {
      State& state = *of(common);
      if (state.jpeg.input_scan_number > state.most_scans) state.leave(End::scans);
      if (state.stop && state.stop()) state.leave(End::stop);
    };
    jpeg.client_data = this;
    guarded([this] { jpeg_create_decompress(&jpeg); });
    jpeg.progress = &progress;
  }

  ~State() { jpeg_destroy_decompress(&jpeg); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  static State* of(j_common_ptr common) { return static_cast<State*>(common->client_data); }

  [[noreturn]] void leave(End why = End::damage) {
    end = why;
    if (why == End::damage) errors.format_message(reinterpret_cast<j_common_ptr>(&jpeg), message);
    std::longjmp(jump, 1);
  }

  [[noreturn]] void refuse() const {
    if (end == End::stop) throw ImageError("the decoding was stopped");
    if (end == End::damage) throw ImageError("damaged JPEG: {}", message);
    throw ImageError("JPEG of {}x{} pixels with more than {} scans; save it again with fewer", jpeg.image_width,
                     jpeg.image_height, most_scans);
  }

  /// Throws ImageError when libjpeg finds an error within `work`, or the progress monitor leaves it.
  template <typename Work>
  void guarded(const Work& work) {
    if (setjmp(jump) == 0) {
      work();
      return;
    }
    refuse();
  }

  void find_orientation() {
    for (auto* marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
      if (marker->marker != kExifMarker) continue;
      orientation = parse_orientation({marker->data, marker->data_length});
      return;
    }
  }

  void start(int denominator) {
    jpeg.scale_num = 1;
    jpeg.scale_denom = static_cast<unsigned>(denominator);
    const bool cmyk = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
    jpeg.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&jpeg);
  }

  /// Chooses the columns to decode: those wanted, and what libjpeg must decode besides. Everything where colour is
  /// stored in an unusual way, for which libjpeg's own leaving out is less proven.
  Region crop(const Region& wanted) {
    const auto all = static_cast<int>(jpeg.output_width);
    // A progressive one may lack its details; then libjpeg smooths over the borders of blocks, so it must see them all.
    if (jpeg.max_h_samp_factor > 2 || jpeg.max_v_samp_factor > 2 || jpeg.progressive_mode)
      return {0, 0, all, static_cast<int>(jpeg.output_height)};
    // One column more on both sides: where colour is stored at half size, its interpolation reads the neighbours.
    auto left = static_cast<JDIMENSION>(std::max(0, wanted.x - 1));
    auto width = static_cast<JDIMENSION>(std::min(all, wanted.x + wanted.width + 1)) - left;
    jpeg_crop_scanline(&jpeg, &left, &width);
    return {static_cast<int>(left), wanted.y, static_cast<int>(width), wanted.height};
  }

  /// The next rows of the output into all rows of the image.
  void read_rows(Image& image) {
    for (int y = 0; y < image.height; ++y) {
      JSAMPROW row = cmyk_row.empty() ? image.row(y) : cmyk_row.data();
      jpeg_read_scanlines(&jpeg, &row, 1);
      if (!cmyk_row.empty()) cmyk_to_rgb(row, image.width, image.row(y));
    }
  }

  /// Room for the rows to come, which are `width` wide.
  void prepare(int width, int height, Image& image) {
    image.reshape(width, height);
    if (jpeg.out_color_space == JCS_CMYK) cmyk_row.resize(static_cast<size_t>(width) * 4);
  }
};

bool is_jpeg(std::span<const char> bytes) {
  return std::string_view(bytes.data(), bytes.size()).starts_with("\xff\xd8\xff");
}

JpegReader::JpegReader(std::span<const char> bytes, const DecodeOptions& options) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.guarded([&] {
    jpeg_mem_src(&state.jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_save_markers(&state.jpeg, kExifMarker, kMaxMarkerBytes);
    jpeg_read_header(&state.jpeg, TRUE);
  });
  state.find_orientation();  // libjpeg drops the markers after the last row
  const int64_t pixels = int64_t{state.jpeg.image_width} * state.jpeg.image_height;
  if (pixels > options.max_pixels)
    throw ImageError("JPEG of {}x{} pixels: more than the limit of {}; make it smaller", state.jpeg.image_width,
                     state.jpeg.image_height, options.max_pixels);
  state.most_scans = max_scans(pixels);
  state.stop = options.stop;
}

JpegReader::~JpegReader() = default;

Size JpegReader::size() const {
  return {static_cast<int>(state_->jpeg.image_width), static_cast<int>(state_->jpeg.image_height)};
}

int JpegReader::orientation() const {
  return state_->orientation;
}

void JpegReader::read(Image& image) {
  State& state = *state_;
  state.guarded([&] { state.start(1); });
  state.prepare(static_cast<int>(state.jpeg.output_width), static_cast<int>(state.jpeg.output_height), image);
  state.guarded([&] {
    state.read_rows(image);
    jpeg_finish_decompress(&state.jpeg);
  });
}

Region JpegReader::read(const Region& wanted, int denominator, Image& image) {
  State& state = *state_;
  Region got = wanted;
  state.guarded([&] {
    state.start(denominator);
    got = state.crop(wanted);
  });
  if (!has_end(state.jpeg.src->next_input_byte, state.jpeg.src->bytes_in_buffer) && !jpeg_input_complete(&state.jpeg))
    throw ImageError("damaged JPEG: ends before its end marker");
  state.prepare(got.width, got.height, image);
  state.guarded([&] {
    if (got.y > 0) jpeg_skip_scanlines(&state.jpeg, static_cast<JDIMENSION>(got.y));
    state.read_rows(image);
  });
  return got;
}

}  // namespace trireme::image
