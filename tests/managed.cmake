# Tests of these subjects look into the device's memory: SHARDLOOP_MEMORY=managed.
set(sl_managed_subjects adamw attention_forms attention_kernels channel convolution dropout dropout_kernels expert_kernels experts forms gradient_check hashes kernels
    loss_kernels
    modules norms optimizer reduce sequence_kernels settled sgd stress)
