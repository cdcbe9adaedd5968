// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::checkpoint {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {301,
       "Not a usable safetensors file",
       {"It is cut off, its header is not JSON or absurdly long, or bytes belong to no tensor."},
       {"Fetch or export it again."}},
      {302,
       "A tensor whose description is wrong",
       {"Unknown type, a shape that does not fit its bytes, ranges that overlap or lie outside the file."},
       {"Fetch or export it again; distrust the source."}},
      {303,
       "An index that cannot be used",
       {"model.safetensors.index.json or pytorch_model.bin.index.json is malformed, or names a tensor that "
        "its file does not have."},
       {"Fetch or export the folder again."}},
      {304,
       "A manifest that cannot be used",
       {"It is torn, altered, or written by another version."},
       {"Use another checkpoint of the run."}},
      {305,
       "A checkpoint file that is missing or damaged",
       {"It is absent, or has another size or checksum than the manifest says."},
       {"Use another checkpoint, or copy the whole folder again."}},
      {306,
       "No checkpoint or model in the folder",
       {"The path is wrong, or the folder holds a model in another format."},
       {"Name the right folder; let Python save the model as safetensors."}},
      {307,
       "A tensor that is missing or does not fit",
       {"The folder holds another model or other sizes, or stores it as neither fp32, bf16 nor fp16."},
       {"Check model.family and the sizes against the folder's config.json."}},
      {308,
       "A file name that leads out of the folder",
       {"The index names ../, an absolute path, or a link to elsewhere."},
       {"Put a copy of the file there; distrust the source."}},
      {309,
       "A tensor in two files",
       {"Files of two models were mixed in one folder."},
       {"Save or export the model again."}},
      {310,
       "A config.json that is no model's",
       {"Its values are nested so deeply that only someone who means harm writes it."},
       {"Fetch it from where the weights came from; distrust the source."}},
      {312,
       "Not a usable file of PyTorch",
       {"pytorch_model.bin is cut off or damaged, a compressed archive, or its tensors lie outside its "
        "bytes."},
       {"Fetch it again.", "Or let Python save the model as safetensors: model.save_pretrained(DIR)."}},
      {313,
       "A pickle that is no list of weights",
       {"pytorch_model.bin holds a Python pickle, which can ask for anything. It is read as data here, and "
        "only "
        "the few things that a state_dict needs are known.",
        "Something else was saved, such as a whole model or a training script's state; or somebody put code "
        "into "
        "the file."},
       {"Distrust a file that asks for something like os.system or builtins.eval: nothing in it was run "
        "here, "
        "but PyTorch may run it.",
        "For a file of your own, save model.state_dict(), or the model as safetensors."}},
      {322,
       "Parameters that do not have their hash",
       {"Memory or disk changed bits between saving and loading."},
       {"Take an older checkpoint; test the machine's memory."}},
      {324,
       "A run without a checkpoint",
       {"The run has not saved yet."},
       {"Let it finish, stop it with Ctrl-C (it saves), or set checkpoint.every."}},
      {326,
       "An export into a folder that is not empty",
       {"The target is there already, perhaps from an earlier export."},
       {"Name a new folder, or remove the old one."}},
      {807,
       "The disk is full",
       {"There was no room for the checkpoint; the one before it stays."},
       {"Free some space, or lower checkpoint.keep."}},
      {808,
       "A checkpoint that cannot be written",
       {"The disk failed, or permissions changed."},
       {"Check the disk and its permissions, then run again."}},
      {809, "A folder that cannot be read", {"Permissions, or a disk that failed."}, {"Check both."}},
      {814,
       "A save that was given up",
       {"The run ended, by an error or a signal, while a checkpoint was still being written."},
       {"Run the same command again: it goes on from the newest complete checkpoint."}},
      {816,
       "The run's folder has gone",
       {"The disk or network mount that holds it was unmounted, or somebody moved or removed the folder.",
        "Writing on would put the checkpoint on another disk, where nobody looks for it."},
       {"Mount it again, or move the folder back: training has gone on, and the next save tries again."}},
  };
}

}  // namespace lockstep::checkpoint
