// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::text {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {240,
       "No tokenizer there",
       {"The path is misspelled, or the folder holds neither tokenizer.json nor *.tiktoken, tokenizer.model "
        "or "
        "tekken.json."},
       {"Name a tokenizer's file, or a folder that holds one, such as a Hugging Face model folder."}},
      {241,
       "A tokenizer that cannot be used",
       {"The file is truncated, damaged or of another format.",
        "Its parts contradict each other: two tokens have one id, a merge "
        "names a token that is not there."},
       {"Fetch the file again.", "Correct what the message names."}},
      {242,
       "A pattern that cannot be used",
       {"The tokenizer splits text by a pattern that PCRE2 does not take, or that goes back without end on "
        "this text."},
       {"Take a tokenizer with another pattern."}},
      {243,
       "A part of a tokenizer that is not supported",
       {"The file asks for a normalizer, pre-tokenizer, model, decoder or setting that is not built in; "
        "leaving it out would give "
        "other tokens."},
       {"docs/tokenizers.md lists what is supported.",
        "Encode with the owner's library into a file of tokens, and train with "
        "data.kind=tokens."}},
      {244,
       "A tiktoken file that is not known",
       {"These files hold tokens alone; how text is cut is known for some vocabularies, by their size."},
       {"Take the tokenizer.json of the same model."}},
      {245,
       "Text that a tokenizer has no token for",
       {"The vocabulary lacks a character or a word of the text, and has no token for unknown ones."},
       {"Take the tokenizer that the text was made for."}},
  };
}

}  // namespace lockstep::text
