// How many files and sockets this process may open at once.
#pragma once

namespace lockstep::base {

// The usual 1024 are too few for a thousand ranks; the hard limit is there to be used, and programs started
// later inherit the change. Does what it can: who opens too many is told then.
void raise_descriptor_limit(int wanted);
int descriptor_limit();  // as it is now

}  // namespace lockstep::base
