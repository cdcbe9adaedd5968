// The folder that this process works in may have been removed behind its back.
#pragma once

namespace lockstep::base {

// IoError 820 where it is gone. Asked before LibTorch's MKL is loaded, which would end the process.
void require_working_directory();

}  // namespace lockstep::base
