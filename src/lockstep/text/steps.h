// The steps of a tokenizer.json beside its model: normalizers, pre-tokenizers, decoders.
//
// Each kind of step is a row in a table of its file: a name as the files write it, and a function that reads
// its keys. A name that no row has is refused (DataError 243), and so is a key's value that we do not do.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/scan.h"

namespace lockstep::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;
  virtual bool leaves(std::string_view text) const { return (void)text, false; }  // quick: it changes nothing
  virtual bool keeps_cuts() const { return false; }  // text cut between words comes out alike
  // It takes away the character that the text begins with: what is left begins later than the text does.
  virtual bool drops_start(std::string_view text) const;
};

struct Piece {
  std::string text;
  bool at_start;        // it begins where the whole text does
  size_t inserted = 0;  // bytes at its beginning that were put there: no part of the text
};
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void split(std::vector<Piece>& pieces) const = 0;
  // What a scanner over raw bytes can do in its place, for the way without pieces.
  virtual void flatten(std::vector<const PreTokenizer*>& steps) const { steps.push_back(this); }
  virtual Scan scan() const { return nullptr; }            // it isolates by this scanner
  virtual std::string_view pattern() const { return {}; }  // or by this pattern
  virtual bool to_letters() const { return false; }        // GPT-2's alphabet and nothing else
};

class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

std::unique_ptr<Normalizer> make_normalizer(const nlohmann::json& part);
std::unique_ptr<Normalizer> make_python_nfc();  // unicodedata.normalize("NFC", text)
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const nlohmann::json& part);
std::unique_ptr<DecodeStep> make_decode_step(const nlohmann::json& part);

}  // namespace lockstep::text
