// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::see {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {760,
       "No metrics there",
       {"The folder is not a run's, the name is misspelled, or the run has not finished its first logged "
        "step."},
       {"Name a run folder, such as runs/first.", "Wait until the run has printed its first step."}},
      {761,
       "Metrics that cannot be read",
       {"metrics.jsonl was removed, its permissions changed, or the disk reported an error."},
       {"Check the file and the disk that it is on."}},
      {762,
       "A file that is no run's metrics",
       {"metrics.jsonl has a line that is longer than any that a run writes: it is another file."},
       {"Name a run folder that `lockstep train` has written."}},
      {768,
       "A disk that does not answer",
       {"The run's folder is on a file server that is down, or behind a network that is."},
       {"`mount` shows what the folder is on; the run itself may wait for it, too.",
        "Try again when `ls` of the folder answers."}},
      {765,
       "Run in flight gives no profile",
       {"The run does not train on this host, has ended meanwhile, or is of a version that does not listen.",
        "Its steps take longer than --timeout, or it evaluates or saves just now."},
       {"Wait longer with --timeout.",
        "`lockstep train ... --profile 10:12` profiles chosen steps instead."}},
      {766,
       "No address of a webhook",
       {"--notify or --to names a variable that is not set, a file that cannot be read, or the address "
        "itself.",
        "What is there is no http:// or https:// address."},
       {"export SLACK_WEBHOOK=https://hooks.slack.com/services/..., then --notify env:SLACK_WEBHOOK.",
        "`lockstep notify --to env:SLACK_WEBHOOK --test hello` tries it."}},
      {767,
       "Webhook not reached",
       {"The network, a proxy or a certificate is in the way, or the webhook was removed."},
       {"Try it with curl from the same machine.", "Make a new webhook."}},
      {763,
       "Metrics that cannot be written",
       {"The folder does not exist, cannot be written to, or the disk is full."},
       {"Name another place with --out."}},
  };
}

}  // namespace lockstep::see
