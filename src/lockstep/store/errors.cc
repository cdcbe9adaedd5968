// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::store {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {286,
       "Not an address in an object store",
       {"The URI is misspelled, names no bucket, or holds a key or a password, which would end up in recipes "
        "and logs."},
       {"Write s3://bucket/path, gs://bucket/path, abfs://container@account.dfs.core.windows.net/path or "
        "file:///path.",
        "Set credentials in the environment: docs/stores.md lists the variables."}},
      {287,
       "No support for object stores in this build",
       {"s3://, gs:// and abfs:// are read by Arrow's libraries, which were not there when Lockstep was "
        "built."},
       {"Run ./lockstep setup with a network.", "Copy the files to a disk with the store's own tool."}},
      {288,
       "No such object or bucket",
       {"The name is misspelled, or the object or its bucket was removed.",
        "The credentials belong to another account or server."},
       {"List the bucket with the store's own tool and compare the names."}},
      {289,
       "Access to the object store refused",
       {"No credentials were found, they are wrong, or they have expired.",
        "They do not allow reading (or, for checkpoint.to, writing and listing) this bucket."},
       {"Set the credentials in the environment: docs/stores.md lists the variables of each store.",
        "Renew them, and run the same command again: it resumes where it stopped."}},
      {290,
       "Object store does not answer",
       {"It was busy (429, 503), reset connections or sent too few bytes for longer than "
        "LOCKSTEP_OBJECT_PATIENCE.",
        "There is no way to it: no network, a proxy, or a wrong endpoint."},
       {"Run the same command again; what was fetched is kept.", "Raise LOCKSTEP_OBJECT_PATIENCE."}},
      {291,
       "Object cache too small",
       {"What the run reads from object stores is larger than LOCKSTEP_OBJECT_CACHE_GIB, less what other "
        "running processes use."},
       {"Raise LOCKSTEP_OBJECT_CACHE_GIB.", "Set LOCKSTEP_OBJECT_CACHE to a folder on a larger disk."}},
      {292,
       "Cannot write the object cache",
       {"Its disk is full or read-only, or the folder belongs to someone else."},
       {"Free space, or set LOCKSTEP_OBJECT_CACHE to another folder. All of it may be deleted while nothing "
        "runs."}},
      {293,
       "Invalid setting for object stores",
       {"LOCKSTEP_OBJECT_CACHE_GIB or LOCKSTEP_OBJECT_PATIENCE is not a number in its range, or there is no "
        "folder for the cache."},
       {"Set or unset the variable that the message names."}},
      {294,
       "Object changes while it is read",
       {"Another program keeps replacing it."},
       {"Wait until it is done, then run the same command again."}},
      {295,
       "Object replaced or removed during the run",
       {"Data that is too large for the cache is read where it lies, and somebody wrote another version of "
        "it "
        "or deleted it meanwhile."},
       {"Restore it, and run the same command again: it resumes where it stopped.",
        "Write new data under new names."}},
  };
}

}  // namespace lockstep::store
