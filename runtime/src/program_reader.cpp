// The only file that knows the generated FlatBuffers code.

#include "program_reader.h"

#include <pte_arenas/wire/program_generated.h>

#include <cstring>

#include "message.h"

namespace executorch {
namespace extension {
namespace ET_ARENAS_NAMESPACE {
namespace internal {
namespace {

namespace wire = ::pte_arenas::wire;

// The `eh00` header, behind the FlatBuffer's root offset and identifier:
// magic, then length (32 bits), program size, segment base and, in newer
// files, the size of all segments (64 bits each), little-endian.
constexpr size_t kHeadBytes = 64;
constexpr size_t kMagicOffset = 8;
constexpr char kMagic[] = {'e', 'h', '0', '0'};
constexpr uint32_t kHeaderLength = 24;
constexpr uint32_t kHeaderLengthWithSegmentSize = 32;

uint64_t little_endian(const uint8_t* bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i > 0; --i) {
    value = value << 8 | bytes[i - 1];
  }
  return value;
}

template <typename Vector>
size_t size_of(const Vector* vector) {
  return vector == nullptr ? 0 : vector->size();
}

template <typename T>
runtime::Span<const T> span_of(const flatbuffers::Vector<T>* vector) {
  return vector == nullptr ? runtime::Span<const T>()
                           : runtime::Span<const T>(
                                 reinterpret_cast<const T*>(vector->Data()),
                                 vector->size());
}

std::string_view text_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string_view()
                         : std::string_view(text->c_str(), text->size());
}

template <typename Table>
const Table* as(const void* table) {
  return static_cast<const Table*>(table);
}

bool segments_fit(const wire::Program& program, const ProgramHeader& header,
                  uint64_t file_size) {
  if (size_of(program.segments()) == 0) {
    return true;
  }
  // ExecuTorch writes a program without weights with one empty segment and no
  // header.
  const uint64_t room =
      header.segment_base == 0 ? 0 : file_size - header.segment_base;
  for (const wire::DataSegment* segment : *program.segments()) {
    if (segment->offset() > room || segment->size() > room - segment->offset()) {
      return false;
    }
  }
  return true;
}

/**
 * Checks names, up to a total length: an honest file has room for each of its
 * names, while vectors that share one long name many times over have not.
 */
class NameCheck {
 public:
  explicit NameCheck(uint64_t program_size) : budget_(2 * program_size) {}

  bool accepts(std::string_view name) {
    if (name.size() > budget_) {
      return false;
    }
    budget_ -= name.size();
    return is_utf8(name);
  }

  bool accepts(const ArenasReader& arenas) {
    for (size_t i = 0; i < arenas.num_features(); ++i) {
      if (!accepts(arenas.feature(i))) {
        return false;
      }
    }
    for (size_t a = 0; a < arenas.num_arenas(); ++a) {
      const ArenaReader arena = arenas.arena(a);
      if (!accepts(arena.name())) {
        return false;
      }
      for (size_t s = 0; s < arena.num_slots(); ++s) {
        if (!accepts(arena.slot(s).name())) {
          return false;
        }
      }
    }
    return true;
  }

  bool accepts(const ProgramReader& program) {
    for (size_t m = 0; m < program.num_plans(); ++m) {
      if (!accepts(program.plan(m).name())) {
        return false;
      }
    }
    const ArenasReader arenas = program.arenas();
    return !arenas.present() || accepts(arenas);
  }

 private:
  uint64_t budget_;
};

}  // namespace

bool read_header(runtime::Span<const uint8_t> head, uint64_t file_size,
                 ProgramHeader* header) {
  if (head.size() < kHeadBytes || file_size < kHeadBytes) {
    return false;
  }
  const uint8_t* bytes = head.data() + kMagicOffset;
  if (std::memcmp(bytes, kMagic, sizeof(kMagic)) != 0) {
    *header = {file_size, 0};
    return true;
  }
  const uint64_t length = little_endian(bytes + 4, 4);
  header->program_size = little_endian(bytes + 8, 8);
  header->segment_base = little_endian(bytes + 16, 8);
  const uint64_t segments_size = length >= kHeaderLengthWithSegmentSize
                                     ? little_endian(bytes + 24, 8)
                                     : 0;
  if (length < kHeaderLength || header->program_size < kHeadBytes ||
      header->program_size > file_size) {
    return false;
  }
  if (header->segment_base == 0) {
    return segments_size == 0;
  }
  return header->segment_base >= header->program_size &&
         header->segment_base <= file_size &&
         segments_size <= file_size - header->segment_base;
}

ProgramReader ProgramReader::verify(runtime::Span<const uint8_t> program,
                                    const ProgramHeader& header,
                                    uint64_t file_size) {
  const ProgramReader damaged(nullptr);
  if (header.program_size > program.size() ||
      header.program_size >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return damaged;
  }
  const size_t size = static_cast<size_t>(header.program_size);
  flatbuffers::Verifier::Options options;
  // A table takes at least four bytes and an honest file refers to each once.
  // So a large program passes, and a file whose vectors share their elements
  // many times over cannot take more than linear time.
  options.max_tables = static_cast<flatbuffers::uoffset_t>(size / 4);
  flatbuffers::Verifier verifier(program.data(), size, options);
  if (!wire::VerifyProgramBuffer(verifier)) {
    return damaged;
  }
  const wire::Program* root = wire::GetProgram(program.data());
  const ProgramReader reader(root);
  return segments_fit(*root, header, file_size) &&
                 NameCheck(header.program_size).accepts(reader)
             ? reader
             : damaged;
}

ArenasReader ProgramReader::arenas() const {
  return ArenasReader(as<wire::Program>(table_)->program_arenas());
}

size_t ProgramReader::num_plans() const {
  return size_of(as<wire::Program>(table_)->execution_plan());
}

PlanReader ProgramReader::plan(size_t index) const {
  return PlanReader(as<wire::Program>(table_)->execution_plan()->Get(index));
}

InitialDataReader ProgramReader::initial_data() const {
  const auto* program = as<wire::Program>(table_);
  const auto* lists = program->mutable_data_segments();
  if (size_of(lists) == 0) {
    return {};
  }
  const uint32_t index = lists->Get(0)->segment_index();
  if (index >= size_of(program->segments())) {
    return {};
  }
  const wire::DataSegment* segment = program->segments()->Get(index);
  return {true, index, segment->offset(), segment->size(),
          span_of(lists->Get(0)->offsets())};
}

uint32_t ArenasReader::format() const {
  return as<wire::ProgramArenas>(table_)->format();
}

size_t ArenasReader::num_features() const {
  return size_of(as<wire::ProgramArenas>(table_)->required_features());
}

std::string_view ArenasReader::feature(size_t index) const {
  return text_of(
      as<wire::ProgramArenas>(table_)->required_features()->Get(index));
}

size_t ArenasReader::num_arenas() const {
  return size_of(as<wire::ProgramArenas>(table_)->arenas());
}

ArenaReader ArenasReader::arena(size_t index) const {
  return ArenaReader(as<wire::ProgramArenas>(table_)->arenas()->Get(index));
}

std::string_view ArenaReader::name() const {
  return text_of(as<wire::ProgramArena>(table_)->name());
}

uint64_t ArenaReader::size() const {
  return as<wire::ProgramArena>(table_)->size();
}

uint32_t ArenaReader::alignment() const {
  return as<wire::ProgramArena>(table_)->alignment();
}

int ArenaReader::lifetime() const {
  return static_cast<int>(as<wire::ProgramArena>(table_)->lifetime());
}

int ArenaReader::device_type() const {
  return static_cast<int>(as<wire::ProgramArena>(table_)->device_type());
}

int ArenaReader::device_index() const {
  return as<wire::ProgramArena>(table_)->device_index();
}

size_t ArenaReader::num_slots() const {
  return size_of(as<wire::ProgramArena>(table_)->slots());
}

SlotReader ArenaReader::slot(size_t index) const {
  return SlotReader(as<wire::ProgramArena>(table_)->slots()->Get(index));
}

std::string_view SlotReader::name() const {
  return text_of(as<wire::ArenaSlot>(table_)->fully_qualified_name());
}

int SlotReader::scalar_type() const {
  return static_cast<int>(as<wire::ArenaSlot>(table_)->scalar_type());
}

runtime::Span<const int32_t> SlotReader::sizes() const {
  return span_of(as<wire::ArenaSlot>(table_)->sizes());
}

runtime::Span<const uint8_t> SlotReader::dim_order() const {
  return span_of(as<wire::ArenaSlot>(table_)->dim_order());
}

uint64_t SlotReader::offset() const {
  return as<wire::ArenaSlot>(table_)->offset();
}

uint64_t SlotReader::nbytes() const {
  return as<wire::ArenaSlot>(table_)->nbytes();
}

uint32_t SlotReader::data_buffer_idx() const {
  return as<wire::ArenaSlot>(table_)->data_buffer_idx();
}

uint32_t AccessReader::slot() const {
  return as<wire::SlotAccess>(table_)->slot();
}

int AccessReader::mode() const {
  return static_cast<int>(as<wire::SlotAccess>(table_)->mode());
}

uint32_t BindingReader::memory_id() const {
  return as<wire::ArenaBinding>(table_)->memory_id();
}

uint32_t BindingReader::arena() const {
  return as<wire::ArenaBinding>(table_)->arena();
}

size_t BindingReader::num_accesses() const {
  return size_of(as<wire::ArenaBinding>(table_)->accesses());
}

AccessReader BindingReader::access(size_t index) const {
  return AccessReader(as<wire::ArenaBinding>(table_)->accesses()->Get(index));
}

int PlannedTensorReader::scalar_type() const {
  return static_cast<int>(as<wire::Tensor>(table_)->scalar_type());
}

runtime::Span<const int32_t> PlannedTensorReader::sizes() const {
  return span_of(as<wire::Tensor>(table_)->sizes());
}

uint32_t PlannedTensorReader::data_buffer_idx() const {
  return as<wire::Tensor>(table_)->data_buffer_idx();
}

uint32_t PlannedTensorReader::memory_id() const {
  return as<wire::Tensor>(table_)->allocation_info()->memory_id();
}

uint64_t PlannedTensorReader::memory_offset() const {
  const wire::AllocationDetails* details =
      as<wire::Tensor>(table_)->allocation_info();
  return uint64_t{details->memory_offset_high()} << 32 |
         details->memory_offset_low();
}

std::string_view PlanReader::name() const {
  return text_of(as<wire::ExecutionPlan>(table_)->name());
}

size_t PlanReader::num_bindings() const {
  return size_of(as<wire::ExecutionPlan>(table_)->arena_bindings());
}

BindingReader PlanReader::binding(size_t index) const {
  return BindingReader(
      as<wire::ExecutionPlan>(table_)->arena_bindings()->Get(index));
}

size_t PlanReader::num_buffer_sizes() const {
  return size_of(as<wire::ExecutionPlan>(table_)->non_const_buffer_sizes());
}

int64_t PlanReader::buffer_size(size_t memory_id) const {
  return as<wire::ExecutionPlan>(table_)->non_const_buffer_sizes()->Get(
      memory_id);
}

void PlanReader::buffer_device(size_t memory_id, int* type, int* index) const {
  *type = static_cast<int>(wire::DeviceType::CPU);
  *index = 0;
  const auto* devices =
      as<wire::ExecutionPlan>(table_)->non_const_buffer_device();
  for (size_t i = 0; i < size_of(devices); ++i) {
    const wire::NonConstBufferDevice* device = devices->Get(i);
    if (device->buffer_idx() >= 0 &&
        static_cast<size_t>(device->buffer_idx()) == memory_id) {
      *type = static_cast<int>(device->device_type());
      *index = device->device_index();
      return;
    }
  }
}

size_t PlanReader::num_values() const {
  return size_of(as<wire::ExecutionPlan>(table_)->values());
}

PlannedTensorReader PlanReader::planned_tensor(size_t value) const {
  const wire::Tensor* tensor =
      as<wire::ExecutionPlan>(table_)->values()->Get(value)->val_as_Tensor();
  return PlannedTensorReader(
      tensor == nullptr || tensor->allocation_info() == nullptr ? nullptr
                                                                : tensor);
}

}  // namespace internal
}  // namespace ET_ARENAS_NAMESPACE
}  // namespace extension
}  // namespace executorch
