// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::chat {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {260,
       "Not a conversation",
       {"The object has none of the fields by which conversations are known: messages, conversations, "
        "instruction and "
        "output, prompt and completion."},
       {"Rename the fields, or convert the file.", "Set data.kind=jsonl to train on the text of one field.",
        "data.on_error=skip leaves such objects out and counts them."}},
      {261,
       "A message that cannot be read",
       {"It has no role or no content, an unknown sender, or content that is not text, such as a picture."},
       {"Correct the object that the message names.",
        "data.on_error=skip leaves such objects out and counts them."}},
      {262,
       "A conversation that the chat template refuses",
       {"The template raises an error: roles do not alternate, a system message is not supported, a field is "
        "missing."},
       {"Correct the conversation, or use another template (data.chat_template).",
        "data.on_error=skip leaves such conversations out and counts them."}},
      {263,
       "Nothing to train on in a conversation",
       {"It has no message of the assistant, or every one has \"weight\": 0.",
        "The template marks nothing as generated in it."},
       {"Remove it, or set data.train_on=all.",
        "data.on_error=skip leaves such conversations out and counts them."}},
      {264,
       "It cannot be told which tokens are the assistant's",
       {"The template writes the same message differently in different places, and has no {% generation %} "
        "marks."},
       {"Use a template with {% generation %} marks, with data.chat_template.",
        "data.train_on=all needs to know no turns."}},
      {265,
       "No end-of-turn token to train on",
       {"The template puts nothing behind the assistant's words, or its {% generation %} marks leave it out: "
        "a model "
        "trained on that never stops."},
       {"Put eos_token, or the token that ends a turn, behind the content in the template."}},
      {266,
       "Every token would be trained on",
       {"Nothing stands before the assistant's words, or the template marks all of the text as generated."},
       {"Set data.train_on=all if that is meant; else correct the conversation or the template."}},
      {267,
       "No chat template",
       {"The folder of the tokenizer is that of a base model, which has none.",
        "data.chat_template is misspelled."},
       {"Name a template: data.chat_template=FILE, a .jinja file or a tokenizer_config.json.",
        "Take the tokenizer's folder of the instruction-tuned model: data.tokenizer=DIR."}},
      {268,
       "A chat template that cannot be read",
       {"The file is damaged, or uses what chat templates do not have."},
       {"Correct the line that the message names, or name another file with data.chat_template."}},
      {390,
       "A row that is not a preference",
       {"It has no fields \"chosen\" and \"rejected\", or one of them is null."},
       {"Write {\"prompt\": ..., \"chosen\": ..., \"rejected\": ...}, each a text or a list of messages.",
        "data.on_error=skip leaves such rows out and counts them."}},
      {391,
       "A preference that cannot be read",
       {"It has no prompt, and the answers share no beginning.", "An answer is empty.",
        "\"prompt\" is a text that stands in none of the messages which both answers share."},
       {"Correct the row: texts as TRL's standard form has them, or messages as its conversational form.",
        "data.on_error=skip leaves such rows out and counts them."}},
      {392,
       "The same answer was chosen and rejected",
       {"A tie was written as a preference: it has no gradient."},
       {"Remove the row.", "data.on_error=skip leaves such rows out and counts them."}},
  };
}

}  // namespace lockstep::chat
