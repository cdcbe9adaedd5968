// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::plan {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {181,
       "Unknown device",
       {"The name is misspelled, or the machine is not in the list."},
       {"Use one of the names in the message."}},
      {182,
       "Invalid layout",
       {"A setting in --layouts is misspelled, given twice, or has an invalid value.",
        "A setting needs another one: zero needs data, sequence needs tensor, schedule needs pipeline."},
       {"Write layouts like data=4,zero=3 or pipeline=2,schedule=gpipe, separated by spaces.",
        "docs/verify.md lists the settings."}},
      {183,
       "No layout fits",
       {"parallel.auto tried every layout of the started ranks, and each needs more memory than a rank has.",
        "Sizes fixed in the recipe (parallel.tensor and others) leave no possible layout."},
       {"Start more ranks, or use smaller slices with a larger batch.slices.",
        "Leave the keys of [parallel] at their defaults, so more layouts are tried."}},
      {570,
       "Unusable catalogue",
       {"A file of devices, machines or prices has a row with a missing, unknown or impossible value."},
       {"Correct what the message names; catalogue/ in the repository has rows to copy.",
        "Remove ~/.config/lockstep/catalogue.toml (or what LOCKSTEP_CATALOGUE names) to use the built-in "
        "one."}},
      {571,
       "Unknown machine",
       {"The name after --on is neither a device nor a machine of the catalogue, or the number is "
        "impossible."},
       {"Use a name that `lockstep prices` lists: 8xH100, or \"a3-highgpu-8g x 32\".",
        "Describe your own in a file and add it with `lockstep prices --update FILE`."}},
      {573,
       "No receipt",
       {"The folder has no forecast.json, or no step of the run was timed yet."},
       {"Name a run folder; let the run train for a few steps.",
        "Train again with this version: every run keeps its forecast."}},
      {572,
       "No price",
       {"The catalogue has no price of this machine in this region."},
       {"Leave --region away for the cheapest region, or use one that the message names.",
        "Add the price with `lockstep prices --update FILE`."}},
      {574,
       "Unusable quota file",
       {"The file is none of the listings that are read, or is truncated.",
        "A line of a plain file has other words than REGION WHAT LIMIT [USED] [spot]."},
       {"Write it again: gcloud compute regions describe REGION --format=json > quota.json.",
        "docs/plan.md lists the forms."}},
      {575,
       "Quota of another cloud",
       {"The quota files say nothing about the cloud that this machine is rented from."},
       {"Give that cloud's listing too: --quota may be given several times.",
        "Write the limit into a plain file: REGION WHAT LIMIT."}},
      {576,
       "Profile of another build",
       {"`lockstep bench machine` of another version of Lockstep wrote the profile; its kernels had other "
        "speeds."},
       {"Run `lockstep bench machine` again on that machine, with this version.",
        "If you know that nothing has changed, write this version behind `build` in the profile."}},
  };
}

}  // namespace lockstep::plan
