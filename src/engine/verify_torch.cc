// How a torch.save file is verified: its archive, every record's CRC, its pickle, and whether each object
// decodes.
#include <fmt/format.h>

#include <numeric>

#include "engine/report_progress.h"
#include "engine/verify_parts.h"
#include "milepost/base/aligned_buffer.h"
#include "milepost/format/torch_zip.h"

namespace milepost {
namespace {

void check_records(VerifyJob& job, const std::string& name, const ByteSource& file) {
  std::vector<zip::Record> records = zip::read_directory(file);
  for (const zip::Record& record : records) expect_bytes(job.options.progress, record.size);
  std::vector<Findings> found(records.size());
  std::vector<CrcTally> tallies(records.size());
  std::vector<AlignedBuffer> blocks(static_cast<size_t>(job.pool.num_threads()));
  job.pool.run(static_cast<int64_t>(records.size()), [&](int64_t index, int worker) {
    const auto i = static_cast<size_t>(index);
    AlignedBuffer& block = blocks[static_cast<size_t>(worker)];
    if (block.size() == 0) block = AlignedBuffer(kVerifyBlockBytes);
    check_record(file, records[i], job.options.payloads, block.span(), {name}, found[i], &tallies[i]);
    advance(job.options.progress, records[i].size);
  });
  CrcTally tally;
  for (size_t i = 0; i < records.size(); ++i) {
    job.findings.append(std::move(found[i]));
    tally.records += tallies[i].records;
    tally.without_crc += tallies[i].without_crc;
    if (job.options.payloads) job.report.bytes_checked += records[i].size;
  }
  note_missing_crcs(tally, name, job.findings);
}

void check_objects(VerifyJob& job, const std::string& name, const Checkpoint& checkpoint) {
  const std::vector<Catalog::Object>& objects = checkpoint.catalog().objects();
  for (size_t i = 0; i < objects.size(); ++i) {
    try {
      checkpoint.read_object(static_cast<int64_t>(i));
    } catch (const Error& error) {
      job.findings.add(error, {name, objects[i].name});
    }
  }
}

}  // namespace

void verify_torch_file(VerifyJob& job, const std::string& name) {
  job.report.format = format_name(CheckpointFormat::kTorchSave);
  job.report.files = 1;
  try {
    const std::unique_ptr<ByteSource> file = job.open(name);
    torch_zip::refuse_legacy(*file);
    check_records(job, name, *file);
  } catch (const FormatError& error) {
    job.findings.add(error, {name});
  } catch (const StorageError& error) {
    job.findings.add(error, {name});
  }
  Findings failures;
  const std::shared_ptr<const Checkpoint> checkpoint = job.open_checkpoint(-1, failures);
  if (!checkpoint) {
    if (!job.findings.has_errors()) job.findings.append(std::move(failures));
    return;
  }
  for (const std::string& warning : checkpoint->warnings()) {
    job.findings.warning(ErrorCode::kBadFormat, {name}, warning);
  }
  job.count_entries(checkpoint->catalog());
  check_objects(job, name, *checkpoint);
}

}  // namespace milepost
