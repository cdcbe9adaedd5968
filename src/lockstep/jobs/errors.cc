// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::jobs {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {720,
       "Unusable targets.toml",
       {"The file is not TOML, or has a key that no target knows."},
       {"The message names file and line; `lockstep targets --keys` lists every key with an example."}},
      {721,
       "Invalid setting of a target",
       {"The value has the wrong type or form, or is out of range."},
       {"The message shows an example; `lockstep targets --keys` lists them all."}},
      {722,
       "Settings do not fit the target",
       {"A setting has no effect on this kind of target, or one that it needs is missing."},
       {"Remove or add what the message names, in targets.toml or on the command line.",
        "`lockstep targets --keys` shows for each setting which kinds use it."}},
      {723,
       "Unknown target",
       {"The name after --to is neither a table of targets.toml nor a kind."},
       {"`lockstep targets` lists both."}},
      {724,
       "Secret or variable refused",
       {"A secret was given with its value instead of the place where it is kept.",
        "A variable has the name of a secret; variables are written into scripts and manifests."},
       {"Use --secret NAME=file:PATH, NAME=kubernetes:SECRET/KEY, NAME=google:SECRET, NAME=aws:SECRET or "
        "NAME=azure:VAULT/SECRET: the value is read where the run is."}},
      {725,
       "No such job",
       {"It was submitted from another machine or by another user: the ledger is in "
        "~/.local/state/lockstep/jobs."},
       {"`lockstep jobs` lists all of them."}},
      {726,
       "Not submitted",
       {"The place's own client failed; the message quotes it.",
        "Not logged in, not allowed (403), over the quota or the rate (429), or the service failed (500)."},
       {"`lockstep targets check NAME` tries client and login.",
        "What the client had made before it failed was removed; if that failed too, the message names it, "
        "and "
        "`lockstep stop` and `lockstep jobs --orphans` know it."}},
      {727,
       "Cannot write the ledger",
       {"The disk is full, or ~/.local/state belongs to another user."},
       {"Free some space, or set XDG_STATE_HOME to another folder. Nothing was asked of the place, unless "
        "the message "
        "names what was made: then `lockstep stop JOB` removes it."}},
      {728,
       "Not stopped",
       {"The place's own client failed when it was told to remove something; it may still run and cost "
        "money."},
       {"Run the same command again: it is safe to repeat.",
        "`lockstep jobs --orphans` prints the command that removes it by hand."}},
      {729,
       "The place does not say",
       {"Its client is missing, not logged in, or does not answer."},
       {"`lockstep targets check NAME` tries client and login."}},
  };
}

}  // namespace lockstep::jobs
